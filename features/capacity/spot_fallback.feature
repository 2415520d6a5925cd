Feature: Spot is short
  Spot capacity is bought first where a NodePool allows it, and on-demand takes over when there is none.

  Background:
    Given a cluster set up as the guides describe
    And the manifest "ec2-node-class.yaml" is applied

  @essential @capacity.spot-first-when-both
  Scenario: Spot is bought where both are allowed
    Given the manifest "node-pool-both-markets.yaml" is applied
    When a pod "single" that asks for 1 CPU is created
    Then exactly 1 NodeClaim is launched within 1m
    And the instance is a spot instance
    And pod "single" is Running on a node with "karpenter.sh/capacity-type: spot" within 60s
    And exactly 1 CreateFleet call of type "instant" asked for 1 spot instance with strategy "price-capacity-optimized"

  @essential @capacity.spot-falls-back-to-on-demand
  Scenario: Without spot capacity the launch falls back to on-demand
    Given the manifest "node-pool-both-markets.yaml" is applied
    And spot capacity is exhausted
    When a pod "single" that asks for 1 CPU is created
    Then within 1m a Warning event on a NodeClaim contains "insufficient capacity"
    And exactly 1 NodeClaim is launched within 1m
    And the instance is an on-demand instance
    And pod "single" is Running within 60s of the launch
    And metric "karpenter_nodeclaims_disrupted_total" with reason "insufficient_capacity" is 1
    And metric "karpenter_cloudprovider_instance_launch_failures_total" is at least 1

  @essential @capacity.spot-only-pool-waits @clock
  Scenario: A pool of spot alone waits
    Given the manifest "node-pool-both-markets.yaml" is applied with
      | spec.template.spec.requirements | [{key: karpenter.sh/capacity-type, operator: In, values: [spot]}, {key: karpenter.k8s.aws/instance-family, operator: In, values: [c5, m5]}] |
    And spot capacity is exhausted
    When a pod "single" that asks for 1 CPU is created
    Then within 1m a Warning event on a NodeClaim contains "insufficient capacity"
    And within 1m event "FailedScheduling" on Pod "single" contains "nodepool requirements filtered out all available instance types"
    When 10m passes
    Then pod "single" is Pending
    And no instance is running
    When spot capacity is restored
    Then pod "single" is Running within 5m

  @extension @capacity.spot-only-pool-waits
  Scenario: The pod of a pool of spot alone is told that the market is short, not the NodePool wrong
    Given the manifest "node-pool-both-markets.yaml" is applied with
      | spec.template.spec.requirements | [{key: karpenter.sh/capacity-type, operator: In, values: [spot]}, {key: karpenter.k8s.aws/instance-family, operator: In, values: [c5, m5]}] |
    And spot capacity is exhausted
    When a pod "single" that asks for 1 CPU is created
    Then within 1m event "FailedScheduling" on Pod "single" contains "(NodePool default: types would do, but none of them can be had now in the zones and markets allowed.)"
