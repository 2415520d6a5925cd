Feature: Workloads choose how their nodes are bought
  The label of the purchase option is a node selector: what must not be interrupted runs on on-demand nodes only, beside
  everything else on spot.

  Background:
    Given a cluster set up as the guides describe
    And the manifest "ec2-node-class.yaml" is applied
    And the manifest "node-pool-both-markets.yaml" is applied

  @essential @scheduling.capacity-type-selector
  Scenario: Pods that ask for on-demand run on on-demand nodes alone
    Given a pod "cheap" that asks for 1 CPU is created
    And pod "cheap" is Running on a node with "karpenter.sh/capacity-type: spot" within 3m
    When the objects are applied
      """
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: steady, namespace: default}
      spec:
        replicas: 3
        selector: {matchLabels: {app: steady}}
        template:
          metadata: {labels: {app: steady}}
          spec:
            nodeSelector: {karpenter.sh/capacity-type: on-demand}
            containers:
              - {name: main, image: nginx, resources: {requests: {cpu: 100m}}}
      """
    Then all 3 pods of Deployment "steady" run on nodes with "karpenter.sh/capacity-type: on-demand" within 3m
    And pod "cheap" is Running

  @scheduling.capacity-type-selector @clock
  Scenario: Pods that ask for spot wait for spot, although on-demand could be had
    Given spot capacity is exhausted
    When a pod "cheap" that asks for 1 CPU on a node with "karpenter.sh/capacity-type: spot" is created
    And 5m passes
    Then pod "cheap" is Pending
    And no instance is running
    When spot capacity is restored
    Then pod "cheap" is Running on a node with "karpenter.sh/capacity-type: spot" within 5m
