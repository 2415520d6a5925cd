Feature: NodeClaims and their nodes
  A NodeClaim is a work ticket that the controller opens and closes itself. What NodePool and pods ask for stands on it, and
  from there it comes to the node.

  Background:
    Given a cluster set up as the guides describe
    And the manifest "ec2-node-class.yaml" is applied

  @essential @lifecycle.labels-synced-to-node @scheduling.custom-label-from-template @provisioning.pool-taints-need-toleration @lifecycle.nodeclaim-carries-resolved-spec
  Scenario: Labels, annotations and taints of the NodePool are on its nodes
    Given the manifest "node-pool.yaml" is applied with
      | spec.template.metadata                    | {labels: {billing-team: my-team}, annotations: {example.com/owner: somebody}} |
      | spec.template.spec.taints                 | [{key: example.com/batch, value: 'yes', effect: NoSchedule}]                  |
      | spec.template.spec.terminationGracePeriod | 48h                                                                           |
    And a pod "intolerant" that asks for 1 CPU is created
    When the objects are applied
      """
      apiVersion: v1
      kind: Pod
      metadata: {name: batch, namespace: default}
      spec:
        nodeSelector: {billing-team: my-team}
        tolerations: [{key: example.com/batch, operator: Equal, value: "yes", effect: NoSchedule}]
        containers:
          - {name: main, image: nginx, resources: {requests: {cpu: "1"}}}
      """
    Then exactly 1 NodeClaim is launched within 1m
    And pod "batch" is Running on a node with "billing-team: my-team" within 60s
    And the node carries the annotation "example.com/owner" with value "somebody"
    And the node has the taint "example.com/batch=yes:NoSchedule" within 1s
    And the labels of the node agree with the instance and the NodeClaim
    And field "spec.expireAfter" of the NodeClaim is "720h"
    And field "spec.terminationGracePeriod" of the NodeClaim is "48h0m0s"
    And pod "intolerant" is Pending
    And within 1s event "FailedScheduling" on Pod "intolerant" contains "did not tolerate taint"

  @essential @lifecycle.nodeclaim-made-by-controller @lifecycle.unregistered-taint-removed @lifecycle.status-fields-filled @termination.finalizers-present @provisioning.does-not-scale-pods
  Scenario: The controller opens a NodeClaim for pods and closes it when they are gone
    Given the manifest "node-pool.yaml" is applied
    When the manifest "nginx.yaml" is applied
    Then exactly 1 NodeClaim is launched within 1m
    And all 10 pods of Deployment "nginx" are Running within 60s of the launch
    And the NodeClaim was made by the controller, is named for NodePool "default" and owned by it
    And the NodeClaim, its node and its instance name each other
    And the node is not tainted "karpenter.sh/unregistered:NoExecute"
    And the node carries the label "karpenter.sh/registered" with value "true"
    And the node carries the label "karpenter.sh/initialized" with value "true"
    And the node has the finalizer "karpenter.sh/termination"
    When Deployment "nginx" is scaled to 0
    Then the NodeClaim is deleted within 2m
    And no NodeClaim exists within 2m
    And the controller wrote no Deployment and no ReplicaSet

  @lifecycle.condition-sequence
  Scenario: Conditions come true in order, each with its event
    Given the manifest "node-pool.yaml" is applied
    When a pod "single" that asks for 1 CPU is created
    Then pod "single" is Running within 3m
    And the conditions "Launched, Registered, Initialized, Ready" of the NodeClaim came true in this order
    # The NodeClaim is launched by the time it has conditions, so no change of that one is told.
    And within 1s event "Registered" on the NodeClaim contains "Type: Registered, Status: Unknown -> True"
    And within 1s event "Initialized" on the NodeClaim contains "Type: Initialized, Status: Unknown -> True"
    And within 1s event "Ready" on the NodeClaim contains "Type: Ready, Status: Unknown -> True"

  @provisioning.startup-taints-need-no-toleration @disruption.uninitialized-node-not-considered @clock
  Scenario: A startup taint needs no toleration, and pods wait until it is taken off
    Given the manifest "node-pool.yaml" is applied with
      | spec.template.spec.startupTaints | [{key: node.cilium.io/agent-not-ready, value: 'true', effect: NoExecute}] |
    When a pod "single" that asks for 1 CPU is created
    Then exactly 1 NodeClaim is launched within 1m
    And condition "Initialized" of the NodeClaim is "Unknown" with reason "StartupTaintsExist" within 1m
    And the node has the taint "node.cilium.io/agent-not-ready=true:NoExecute" within 1s
    When 10m passes
    Then pod "single" is Pending
    And the NodeClaim still exists
    When taint "node.cilium.io/agent-not-ready" is taken off the node
    Then pod "single" is Running within 10s
    And condition "Initialized" of the NodeClaim is "True" with reason "Initialized" within 5s

  @lifecycle.manual-nodeclaim @clock
  Scenario: A NodeClaim can be made by hand, and its node is nobody's to remove
    When the objects are applied
      """
      apiVersion: karpenter.sh/v1
      kind: NodeClaim
      metadata: {name: by-hand}
      spec:
        nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
        requirements:
          - {key: node.kubernetes.io/instance-type, operator: In, values: [m5.large]}
          - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
      """
    Then exactly 1 NodeClaim is launched within 1m
    And the instance is of type "m5.large"
    And condition "Initialized" of the NodeClaim is "True" with reason "Initialized" within 1m
    When 10m passes
    Then the NodeClaim still exists

  @lifecycle.nodeclaim-immutable
  Scenario: What a NodeClaim asks for cannot be changed
    When the objects are applied
      """
      apiVersion: karpenter.sh/v1
      kind: NodeClaim
      metadata: {name: by-hand}
      spec:
        expireAfter: 720h
        nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
        requirements:
          - {key: node.kubernetes.io/instance-type, operator: In, values: [m5.large]}
      """
    Then the objects are refused with "spec is immutable"
      """
      apiVersion: karpenter.sh/v1
      kind: NodeClaim
      metadata: {name: by-hand}
      spec:
        expireAfter: 24h
        nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
        requirements:
          - {key: node.kubernetes.io/instance-type, operator: In, values: [m5.large]}
      """

  @lifecycle.instance-tagged-after-registration
  Scenario: A registered node's instance is tagged with its name and NodeClaim
    Given the manifest "node-pool.yaml" is applied
    When a pod "single" that asks for 1 CPU is created
    Then pod "single" is Running within 3m
    And the instance carries the names of its node, NodeClaim and cluster "demo" as tags
    And the NodeClaim is annotated "karpenter.k8s.aws/tagged" with "true"
