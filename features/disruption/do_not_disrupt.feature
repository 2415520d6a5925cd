Feature: Long work is not cut off
  The annotation karpenter.sh/do-not-disrupt keeps a pod's node from every disruption that can be put off, and the pod from
  every eviction. Expiry, interruption and a person who deletes the node are not stopped by it: they begin, and wait.

  Background:
    Given a cluster set up as the guides describe
    And the manifest "ec2-node-class.yaml" is applied

  @essential @disruption.do-not-disrupt-pod @clock
  Scenario: The node of a protected Job stays until the Job is complete
    Given the manifest "node-pool-both-markets.yaml" is applied
    And the manifest "job.yaml" is applied
    And the pod of Job "nightly" is Running within 3m
    When 10m passes
    Then the NodeClaim still exists
    And within 2m event "DisruptionBlocked" on the node contains "annotation (Pod=default/nightly-"
    And Job "nightly" is complete within 30m
    And the pod of Job "nightly" was never asked to leave
    And the NodeClaim is deleted within 90s

  @essential @disruption.do-not-disrupt-not-for-forceful @termination.do-not-disrupt-blocks-drain @clock
  Scenario: Expiry begins at its time and waits for the protected Job
    Given the manifest "node-pool-both-markets.yaml" is applied with
      | spec.template.spec.expireAfter | 5m |
    And the manifest "job.yaml" is applied
    And the pod of Job "nightly" is Running within 3m
    Then the NodeClaim is deleted between 5m and 5m5s after its creation
    And the node has the taint "karpenter.sh/disrupted:NoSchedule" within 5s
    When 10m passes
    Then the instance is running
    And Job "nightly" is complete within 30m
    And the pod of Job "nightly" was never asked to leave
    And the instance is terminated within 1m

  @disruption.do-not-disrupt-not-for-forceful @termination.do-not-disrupt-blocks-drain @clock
  Scenario: A person who deletes the node waits for the protected pod alone
    Given the manifest "node-pool.yaml" is applied
    And the manifest "job.yaml" is applied
    And the pod of Job "nightly" is Running within 3m
    And a pod "plain" that asks for 100m CPU is created
    And pod "plain" is Running within 30s
    When somebody deletes the node
    Then the node has the taint "karpenter.sh/disrupted:NoSchedule" within 5s
    And pod "plain" is gone within 30s
    And Job "nightly" is complete within 30m
    And the pod of Job "nightly" was never asked to leave
    And the node is gone within 2m

  @extension @termination.do-not-disrupt-blocks-drain @clock
  Scenario: The pod that holds up a drain is named
    Given the manifest "node-pool.yaml" is applied
    And the manifest "job.yaml" is applied
    And the pod of Job "nightly" is Running within 3m
    When somebody deletes the NodeClaim
    Then within 10s event "FailedDraining" on the node contains "Failed to drain node, pod default/nightly-"
    And Job "nightly" is complete within 30m

  @disruption.do-not-disrupt-duration @clock
  Scenario: A protection with a duration ends with it
    # A pod that costs nothing to move does not keep a node; its annotation does, for as long as it says.
    Given the manifest "node-pool.yaml" is applied
    And the objects are applied
      """
      apiVersion: v1
      kind: Pod
      metadata:
        name: warm-up
        namespace: default
        annotations:
          karpenter.sh/do-not-disrupt: 10m
          controller.kubernetes.io/pod-deletion-cost: "-134217728"
      spec:
        containers:
          - {name: main, image: nginx, resources: {requests: {cpu: 500m}}}
      """
    And pod "warm-up" is Running within 3m
    When 9m passes
    Then the NodeClaim still exists
    And the NodeClaim is deleted within 2m

  @disruption.do-not-disrupt-node @clock
  Scenario: An empty node with the annotation stays until it is taken off
    Given the manifest "node-pool.yaml" is applied
    And a pod "single" that asks for 1 CPU is created
    And pod "single" is Running within 3m
    And the node is annotated "karpenter.sh/do-not-disrupt" with "true"
    When pod "single" is deleted
    And 10m passes
    Then the NodeClaim still exists
    And within 2m event "DisruptionBlocked" on the node contains "annotation"
    When the node is annotated "karpenter.sh/do-not-disrupt" with "false"
    Then the NodeClaim is deleted within 30s
