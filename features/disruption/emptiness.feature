Feature: Empty nodes go
  A node that nobody needs any more is removed after the wait that its NodePool sets, and not before.

  Background:
    Given a cluster set up as the guides describe
    And the manifest "ec2-node-class.yaml" is applied
    And the manifest "node-pool.yaml" is applied
    And the manifest "nginx.yaml" is applied
    And all 10 pods of Deployment "nginx" are Running within 3m

  @essential @disruption.empty-node-removed-after-wait
  Scenario: The node of a deleted Deployment is removed after consolidateAfter
    When Deployment "nginx" is deleted
    # The wait, then at most ten seconds until the next look and fifteen of looking twice.
    Then the NodeClaim is deleted between 60s and 85s after the last pod left
    And the node had the taint "karpenter.sh/disrupted:NoSchedule" before it went
    And the instance is terminated within 3m
    And no NodeClaim exists within 1m
    And metric "karpenter_voluntary_disruption_decisions_total" with decision "delete" and reason "empty" is 1

  @essential @disruption.wait-restarts-on-pod-change @clock
  Scenario: A pod that arrives in the wait keeps the node
    When Deployment "nginx" is deleted
    And 40s passes after the last pod left
    And a pod "latecomer" that asks for 500m CPU is created
    Then pod "latecomer" is Running within 30s
    When 10m passes
    Then the NodeClaim still exists
    And pod "latecomer" is Running

  @disruption.wait-restarts-on-pod-change
  Scenario: Pods that come and go in the wait begin it anew
    When Deployment "nginx" is deleted
    And 40s passes after the last pod left
    And the manifest "web.yaml" is applied
    Then all 4 pods of Deployment "web" are Running within 30s
    When 20s passes
    And Deployment "web" is deleted
    Then the NodeClaim is deleted between 60s and 90s after the last pod left

  @disruption.consolidate-after-advice @clock
  Scenario: A long wait rides out a workload that comes and goes
    Given the manifest "node-pool.yaml" is applied with
      | spec.disruption.consolidateAfter | 10m |
    When Deployment "nginx" is scaled to 0
    And 4m passes
    And Deployment "nginx" is scaled to 10
    Then all 10 pods of Deployment "nginx" are Running within 10s
    When 4m passes
    And Deployment "nginx" is scaled to 0
    And 4m passes
    And Deployment "nginx" is scaled to 10
    Then all 10 pods of Deployment "nginx" are Running within 10s
    And the NodeClaim still exists

  @disruption.consolidate-never @clock
  Scenario: With consolidateAfter Never an empty node stays
    Given the manifest "node-pool.yaml" is applied with
      | spec.disruption.consolidateAfter | Never |
    When Deployment "nginx" is deleted
    And 1h passes
    Then the NodeClaim still exists
    And the NodeClaim has no condition "Consolidatable"

  @disruption.daemonset-node-counts-as-empty
  Scenario: Pods that cost nothing to move do not keep a node
    Given the manifest "node-pool.yaml" is applied with
      | spec.disruption.consolidationPolicy | WhenEmpty |
    And the objects are applied
      """
      apiVersion: v1
      kind: Pod
      metadata:
        name: worthless
        namespace: default
        annotations: {controller.kubernetes.io/pod-deletion-cost: "-134217728"}
      spec:
        containers:
          - {name: main, image: nginx, resources: {requests: {cpu: 100m}}}
      """
    And pod "worthless" is Running within 10s
    When Deployment "nginx" is deleted
    And 30s passes
    Then the NodeClaim is deleted within 90s
    And metric "karpenter_voluntary_disruption_decisions_total" with decision "delete" and reason "empty" is 1
