Feature: Nodes that are not ours
  A small managed node group stays beside the nodes of NodePools: pods use its room, and the controller, which runs on it,
  never touches it.

  Background:
    Given a cluster set up as the guides describe
    And the manifest "ec2-node-class.yaml" is applied
    And the manifest "node-pool-both-markets.yaml" is applied

  @essential @termination.unmanaged-node-not-terminated @clock
  Scenario: Room on a managed node group's node is used, and the node is left alone
    Given managed node group "system" grows by a node
    And the node of managed node group "system" is Ready within 1m
    When a pod "single" that asks for 1 CPU is created
    Then pod "single" runs on the node of managed node group "system" within 10s
    When pod "single" is deleted
    And a spot interruption message arrives for the instance of managed node group "system"
    And 10m passes
    Then the interruption queue is empty
    And no NodeClaim exists
    And the node of managed node group "system" was never touched by the controller

  @deployment.coexists-with-cluster-autoscaler
  Scenario: While Cluster Autoscaler scales too, capacity is bought twice, and ours goes when it is empty
    When a pod "single" that asks for 1 CPU is created
    And managed node group "workers" grows by a node
    Then exactly 1 NodeClaim is launched within 12s
    And the node of managed node group "workers" is Ready within 1m
    And pod "single" is Running within 1m
    When pod "single" is deleted
    Then the NodeClaim is deleted within 3m
    And the instance is terminated within 1m
    And the node of managed node group "workers" was never touched by the controller

  @deployment.controller-not-on-managed-nodes @scheduling.own-pods-not-served
  Scenario: The controller's own pods, which refuse managed nodes, get none made for them
    When the objects are applied
      """
      apiVersion: v1
      kind: Pod
      metadata: {name: karpenter, namespace: default}
      spec:
        affinity:
          nodeAffinity:
            requiredDuringSchedulingIgnoredDuringExecution:
              nodeSelectorTerms:
                - matchExpressions:
                    - {key: karpenter.sh/nodepool, operator: DoesNotExist}
        containers:
          - {name: controller, image: karpenter, resources: {requests: {cpu: "1"}}}
      """
    And 2m passes
    Then pod "karpenter" is Pending
    And EC2 was never asked for an instance
    When managed node group "system" grows by a node
    Then the node of managed node group "system" is Ready within 1m
    And pod "karpenter" runs on the node of managed node group "system" within 10s

  @essential @extension @deployment.controller-not-on-managed-nodes
  Scenario: A controller that runs on a node of its own is told so, once
    Given a pod "single" that asks for 1 CPU is created
    And pod "single" is Running within 3m
    When the controller runs on the node
    Then within 30s event "ControllerOnManagedNode" on the node contains "require karpenter.sh/nodepool DoesNotExist in the node affinity of its pods"
    When 2m passes
    Then exactly 1 warning of the controller's log contains "the controller runs on a node that it manages"

  @extension @deployment.controller-not-on-managed-nodes
  Scenario: A controller on a managed node group is in its place
    Given managed node group "system" grows by a node
    And the node of managed node group "system" is Ready within 1m
    When the controller runs on the node of managed node group "system"
    And 2m passes
    Then exactly 0 warnings of the controller's log contain "the controller runs on a node that it manages"
