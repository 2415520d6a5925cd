Feature: Nodes have a lifetime
  After expireAfter a node is replaced, so that no machine grows old and no image is kept for ever. Its pods leave as on
  any other drain; no replacement is waited for.

  Background:
    Given a cluster set up as the guides describe, its controller not yet started
    And the manifest "ec2-node-class.yaml" is applied

  @slow @disruption.expiration-at-lifetime
  Scenario: A node of the articles' NodePool is replaced after thirty days
    # A month of leases and long polls is what takes time to simulate, and nothing of it concerns expiry.
    Given environment variable "DISABLE_LEADER_ELECTION" of the controller is "true"
    And environment variable "INTERRUPTION_QUEUE" of the controller is not set
    And the controller is started
    And the manifest "node-pool.yaml" is applied
    And the manifest "nginx.yaml" is applied
    And all 10 pods of Deployment "nginx" are Running within 3m
    When 719h passes
    Then the NodeClaim still exists
    And the NodeClaim is deleted between 720h and 720h10s after its creation
    And metric "karpenter_nodeclaims_disrupted_total" with reason "expired" is 1
    And all 10 pods of Deployment "nginx" are Running on another node within 3m

  @essential @disruption.expiration-at-lifetime @disruption.budget-not-for-expiration @clock
  Scenario: Expiry comes at its time, whatever budgets say, and pods leave by eviction
    Given the controller is started
    And the manifest "node-pool-both-markets.yaml" is applied with
      | spec.template.spec.expireAfter | 10m              |
      | spec.disruption.budgets        | [{nodes: '0'}]   |
    And the manifest "web.yaml" is applied
    And all 4 pods of Deployment "web" are Running within 3m
    Then the NodeClaim is deleted between 10m and 10m5s after its creation
    And the node has the taint "karpenter.sh/disrupted:NoSchedule" within 5s
    And metric "karpenter_nodeclaims_disrupted_total" with reason "expired" is 1
    And all 4 pods of Deployment "web" are Running on another node within 5m
    And the pods left the node by eviction
    And the instance is terminated within 1m

  @disruption.expiration-from-nodeclaim @clock
  Scenario: A NodeClaim keeps the lifetime it was made with
    Given the controller is started
    And the manifest "node-pool.yaml" is applied with
      | spec.template.spec.expireAfter | 1h |
    And a pod "single" that asks for 1 CPU is created
    And pod "single" is Running within 3m
    When the manifest "node-pool.yaml" is applied with
      | spec.template.spec.expireAfter | 10m |
    And 30m passes
    Then the NodeClaim still exists
    And field "spec.expireAfter" of the NodeClaim is "1h"
    And the NodeClaim is deleted between 60m and 60m5s after its creation

  @slow @disruption.expiration-never
  Scenario: A NodePool may say Never
    # A month of leases and long polls is what takes time to simulate, and nothing of it concerns expiry.
    Given environment variable "DISABLE_LEADER_ELECTION" of the controller is "true"
    And environment variable "INTERRUPTION_QUEUE" of the controller is not set
    And the controller is started
    And the manifest "node-pool.yaml" is applied with
      | spec.template.spec.expireAfter | Never |
    And a pod "single" that asks for 1 CPU is created
    And pod "single" is Running within 3m
    When 730h passes
    Then the NodeClaim still exists
    And pod "single" is Running

  @disruption.lifetime-is-an-upper-bound @termination.grace-period-forces @clock
  Scenario: With a termination grace period, a node is gone at the end of both, whatever holds it up
    Given the controller is started
    And the manifest "node-pool.yaml" is applied with
      | spec.template.spec.expireAfter            | 30m |
      | spec.template.spec.terminationGracePeriod | 10m |
    And the manifest "web.yaml" is applied
    And the objects are applied
      """
      apiVersion: policy/v1
      kind: PodDisruptionBudget
      metadata: {name: web, namespace: default}
      spec:
        maxUnavailable: 0
        selector: {matchLabels: {app: web}}
      """
    And all 4 pods of Deployment "web" are Running within 3m
    Then the NodeClaim is deleted between 30m and 30m5s after its creation
    When 8m passes
    Then the node has the taint "karpenter.sh/disrupted:NoSchedule" within 1s
    And the instance is running
    And the instance is terminated within 2m30s
    And all 4 pods of Deployment "web" are Running on another node within 1m
