Feature: Which NodePool serves a pod
  Only a NodePool that is ready takes part; without one nothing is launched, and the log says so.

  Background:
    Given a cluster set up as the guides describe

  @provisioning.no-nodepool-no-action
  Scenario: Without a NodePool nothing happens
    When a pod "single" that asks for 1 CPU is created
    And 1m passes
    Then no NodeClaim exists
    And EC2 was never asked for an instance
    And pod "single" is Pending
    And the controller logs "no dynamic nodepools found"

  @provisioning.not-ready-pool-skipped
  Scenario: A NodePool waits for its class
    Given the manifest "node-pool.yaml" is applied
    When a pod "single" that asks for 1 CPU is created
    And 1m passes
    Then no NodeClaim exists
    And condition "NodeClassReady" of NodePool "default" is "False" with reason "NodeClassNotFound"
    When the manifest "ec2-node-class.yaml" is applied
    Then exactly 1 NodeClaim is launched within 2m

  @provisioning.weight-orders-pools @provisioning.select-pool-by-label
  Scenario Outline: The heavier NodePool is tried first, unless the pod asks for the other
    Given the manifest "ec2-node-class.yaml" is applied
    And the manifest "node-pool.yaml" is applied with
      | metadata.name | light |
      | spec.weight   | 10    |
    And the manifest "node-pool.yaml" is applied with
      | metadata.name | heavy |
      | spec.weight   | 50    |
    When a pod "single" that asks for 1 CPU on a node with "<selector>" is created
    Then exactly 1 NodeClaim is launched within 1m
    And the NodeClaim is of NodePool "<pool>"

    Examples:
      | selector                      | pool  |
      | kubernetes.io/os: linux       | heavy |
      | karpenter.sh/nodepool: light  | light |

  @whole-catalogue @provisioning.weight-restricted-default
  Scenario: What the preferred NodePool cannot give comes from another
    Given the manifest "ec2-node-class.yaml" is applied
    And the manifest "node-pool.yaml" is applied with
      | spec.weight | 50 |
    And the manifest "node-pool.yaml" is applied with
      | metadata.name                   | arm64-specific                                                                                                                                        |
      | spec.template.spec.requirements | [{key: kubernetes.io/arch, operator: In, values: [arm64]}, {key: karpenter.k8s.aws/instance-category, operator: In, values: [c, m, r]}] |
    When a pod "plain" that asks for 1 CPU is created
    Then pod "plain" is Running on a node with "karpenter.sh/nodepool: default, kubernetes.io/arch: amd64" within 3m
    When a pod "arm" that asks for 1 CPU on a node with "kubernetes.io/arch: arm64" is created
    Then pod "arm" is Running on a node with "karpenter.sh/nodepool: arm64-specific, kubernetes.io/arch: arm64" within 3m

  @provisioning.weight-falls-through-on-limit
  Scenario: When the preferred NodePool is at its limit, the next one serves
    Given the manifest "ec2-node-class.yaml" is applied
    And the manifest "node-pool.yaml" is applied with
      | metadata.name   | reserved |
      | spec.weight     | 50       |
      | spec.limits.cpu | 2        |
    And the manifest "node-pool.yaml" is applied
    When a pod "first" that asks for 1 CPU is created
    Then pod "first" is Running on a node with "karpenter.sh/nodepool: reserved" within 3m
    When a pod "second" that asks for 1500m CPU is created
    Then pod "second" is Running on a node with "karpenter.sh/nodepool: default" within 3m
