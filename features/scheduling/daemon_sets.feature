Feature: What DaemonSets take of a node
  A node is chosen with room for the DaemonSets' pods that it will carry, so that what it was launched for fits.

  Background:
    Given a cluster set up as the guides describe
    And the manifest "ec2-node-class.yaml" is applied

  @field-report-11
  Scenario: A DaemonSet that tolerates everything is counted on a tainted NodePool
    Given the manifest "node-pool.yaml" is applied with
      | spec.template.spec.taints       | [{key: dedicated, value: shop, effect: NoSchedule}]                                                                                                    |
      | spec.template.spec.requirements | [{key: node.kubernetes.io/instance-type, operator: In, values: [m5.large, m5.xlarge]}, {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}] |
    And the objects are applied
      """
      apiVersion: apps/v1
      kind: DaemonSet
      metadata: {name: agent, namespace: default}
      spec:
        selector: {matchLabels: {app: agent}}
        template:
          metadata: {labels: {app: agent}}
          spec:
            tolerations: [{operator: Exists}]
            containers:
              - {name: main, image: agent, resources: {requests: {cpu: 500m}}}
      """
    When the objects are applied
      """
      apiVersion: v1
      kind: Pod
      metadata: {name: shop, namespace: default}
      spec:
        tolerations: [{key: dedicated, value: shop}]
        containers:
          - {name: main, image: shop, resources: {requests: {cpu: 1500m}}}
      """
    # Alone the pod would fit on an m5.large.
    Then pod "shop" is Running within 3m
    And the instance is of type "m5.xlarge"
    And a pod of DaemonSet "agent" runs on the node within 1m
    And exactly 1 NodeClaim exists within 1s

  @field-report-11
  Scenario: A DaemonSet that does not tolerate the taint takes nothing of the NodePool's nodes
    Given the manifest "node-pool.yaml" is applied with
      | spec.template.spec.taints       | [{key: dedicated, value: shop, effect: NoSchedule}]                                                                                                    |
      | spec.template.spec.requirements | [{key: node.kubernetes.io/instance-type, operator: In, values: [m5.large, m5.xlarge]}, {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}] |
    And a DaemonSet "agent" whose pods ask for 500m CPU
    When the objects are applied
      """
      apiVersion: v1
      kind: Pod
      metadata: {name: shop, namespace: default}
      spec:
        tolerations: [{key: dedicated, value: shop}]
        containers:
          - {name: main, image: shop, resources: {requests: {cpu: 1500m}}}
      """
    Then pod "shop" is Running within 3m
    And the instance is of type "m5.large"
