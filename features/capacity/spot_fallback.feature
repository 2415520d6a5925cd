Feature: Spot is short
  Spot capacity is bought first where a NodePool allows it, and on-demand takes over when there is none.

  Background:
    Given a cluster set up as the guides describe
    And the manifest "ec2-node-class.yaml" is applied

  @capacity.spot-falls-back-to-on-demand
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

  @capacity.spot-only-pool-waits
  Scenario: A pool of spot alone waits, and says why
    Given the manifest "node-pool.yaml" is applied
    And spot capacity is exhausted
    When a pod "single" that asks for 1 CPU is created
    Then within 1m a Warning event on a NodeClaim contains "insufficient capacity"
    When 10m passes
    Then pod "single" is Pending
    And no instance is running
    When spot capacity is restored
    Then pod "single" is Running within 10m
