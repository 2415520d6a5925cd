Feature: Pods that no node can be made for
  What cannot be served is told on the pod, with the reason, and costs nothing.

  Background:
    Given a cluster set up as the guides describe
    And the manifest "ec2-node-class.yaml" is applied

  @provisioning.failed-scheduling-event
  Scenario: A pod larger than any machine is told so
    Given the manifest "node-pool.yaml" is applied
    When a pod "huge" that asks for 10000 CPU is created
    Then within 1m event "FailedScheduling" on Pod "huge" contains "no instance type has enough resources"
    And no NodeClaim exists

  @provisioning.failed-scheduling-event @scheduling.pod-outside-pool-constraints-waits
  Scenario: A pod for a zone without a subnet is told so
    Given the manifest "node-pool.yaml" is applied
    When a pod "far" that asks for 1 CPU on a node with "topology.kubernetes.io/zone: us-west-2z" is created
    Then within 1m event "FailedScheduling" on Pod "far" contains "topology.kubernetes.io/zone In [us-west-2z]"
    And no NodeClaim exists

  @provisioning.no-matching-types-event
  Scenario: A NodePool whose requirements exclude each other says so
    Given the manifest "node-pool.yaml" is applied with
      | spec.template.spec.requirements | [{key: karpenter.k8s.aws/instance-category, operator: In, values: [c]}, {key: karpenter.k8s.aws/instance-family, operator: In, values: [m5]}] |
    When a pod "single" that asks for 1 CPU is created
    Then within 1m event "NoCompatibleInstanceTypes" on NodePool "default" contains "NodePool requirements filtered out all compatible available instance types"
    And no NodeClaim exists

  @provisioning.only-unschedulable-pods
  Scenario: A pod that is gated is nobody's business yet
    Given the manifest "node-pool.yaml" is applied
    When the objects are applied
      """
      apiVersion: v1
      kind: Pod
      metadata: {name: gated, namespace: default}
      spec:
        schedulingGates: [{name: example.com/wait}]
        containers:
          - {name: main, image: nginx, resources: {requests: {cpu: "1"}}}
      """
    And 1m passes
    Then no NodeClaim exists
    And EC2 was never asked for an instance

  @provisioning.daemonset-alone-adds-nothing
  Scenario: A DaemonSet alone makes no node
    Given the manifest "node-pool.yaml" is applied
    And managed node group "system" grows by a node
    And the node of managed node group "system" is Ready within 1m
    And a DaemonSet "agent" whose pods ask for 4 CPU
    When 5m passes
    Then no NodeClaim exists
    And the pod of DaemonSet "agent" is Pending
