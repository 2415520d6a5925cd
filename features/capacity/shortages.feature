Feature: What EC2 is short of
  A machine that cannot be had is remembered for a while, by type, zone and market; what else would do is bought instead, and
  a pod that nothing else would do for waits with a reason.

  Background:
    Given a cluster set up as the guides describe
    And the manifest "ec2-node-class.yaml" is applied

  @field-report-1
  Scenario: A pod that only one type in one zone would do for waits while there is none
    Given the manifest "node-pool.yaml" is applied with
      | spec.template.spec.requirements | [{key: node.kubernetes.io/instance-type, operator: In, values: [m5.large]}, {key: karpenter.sh/capacity-type, operator: In, values: [spot, on-demand]}] |
    And type "m5.large" cannot be had in zone "us-west-2a"
    When a pod "pinned" that asks for 1 CPU on a node with "topology.kubernetes.io/zone: us-west-2a" is created
    Then within 1m a Warning event on a NodeClaim contains "insufficient capacity"
    And within 1m event "FailedScheduling" on Pod "pinned" contains "none of them can be had now in the zones and markets allowed"
    When 2m passes
    Then pod "pinned" is Pending
    And no instance is running
    And every fleet request names types and subnets
    When type "m5.large" can be had in zone "us-west-2a" again
    Then pod "pinned" is Running on a node with "topology.kubernetes.io/zone: us-west-2a" within 5m

  @field-report-3
  Scenario: Where a type has no spot price it is not bought on spot
    Given the manifest "node-pool.yaml" is applied with
      | spec.template.spec.requirements | [{key: node.kubernetes.io/instance-type, operator: In, values: [m5.large, m5.xlarge]}, {key: karpenter.sh/capacity-type, operator: In, values: [spot]}] |
    And type "m5.large" has no spot price in zone "us-west-2a"
    When a pod "single" that asks for 1 CPU on a node with "topology.kubernetes.io/zone: us-west-2a" is created
    Then exactly 1 NodeClaim is launched within 1m
    And the instance is of type "m5.xlarge"
    And no fleet request offers type "m5.large" in zone "us-west-2a"

  @field-report-5
  Scenario: A subnet without free addresses is left alone and the others are used
    Given the manifest "node-pool.yaml" is applied with
      | spec.template.spec.requirements | [{key: node.kubernetes.io/instance-type, operator: In, values: [m5.large]}, {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}] |
    And the subnet in zone "us-west-2a" has 0 free addresses
    And the subnet in zone "us-west-2b" has 0 free addresses
    When a pod "single" that asks for 1 CPU is created
    Then pod "single" is Running within 5m
    And the instance runs in zone "us-west-2c"
    And every fleet request names types and subnets

  @capacity.ice-nodeclaim-replaced
  Scenario: What was planned cannot be had, so something else is bought
    Given the manifest "node-pool.yaml" is applied with
      | spec.template.spec.requirements | [{key: karpenter.k8s.aws/instance-family, operator: In, values: [m5, r5]}, {key: karpenter.k8s.aws/instance-cpu, operator: In, values: ["2"]}, {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}] |
    And type "m5.large" cannot be had in zone "us-west-2a"
    And type "r5.large" cannot be had in zone "us-west-2a"
    And type "m5.large" cannot be had in zone "us-west-2b"
    And type "r5.large" cannot be had in zone "us-west-2b"
    And type "m5.large" cannot be had in zone "us-west-2c"
    When a pod "single" that asks for 1 CPU is created
    Then exactly 1 NodeClaim is launched within 1m
    And the instance is of type "r5.large"
    And the instance runs in zone "us-west-2c"
