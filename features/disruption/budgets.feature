Feature: Budgets
  A budget bounds how many nodes of a NodePool go at a time for reasons that can wait.

  Background:
    Given a cluster set up as the guides describe
    And the manifest "ec2-node-class.yaml" is applied

  @disruption.budget-zero-freezes @clock
  Scenario: A budget of 0 keeps an empty node
    Given the manifest "node-pool.yaml" is applied with
      | spec.disruption.budgets | [{nodes: '0'}] |
    And a pod "single" that asks for 1 CPU is created
    And pod "single" is Running within 3m
    When pod "single" is deleted
    And 1h passes
    Then the NodeClaim still exists
    And the node is not tainted "karpenter.sh/disrupted:NoSchedule"
    And within 2m event "DisruptionBlocked" on NodePool "default" contains "No allowed disruptions for disruption reason Empty due to blocking budget"
    And metric "karpenter_nodepools_allowed_disruptions" with reason "Empty" is 0

  # Scenarios begin on Thursday, 1 January 2026, at midnight UTC.
  @disruption.budget-schedule-window @clock
  Scenario: A budget with a schedule holds in its window alone
    Given the manifest "node-pool.yaml" is applied with
      | spec.disruption.budgets | [{nodes: '0', schedule: 0 0 * * thu, duration: 1h}] |
    And a pod "single" that asks for 1 CPU is created
    And pod "single" is Running within 3m
    When pod "single" is deleted
    And 55m passes
    Then the NodeClaim still exists
    And the NodeClaim is deleted between 59m50s and 61m after its creation

  @disruption.budget-reasons
  Scenario: A budget that names another reason does not hold up an empty node
    Given the manifest "node-pool.yaml" is applied with
      | spec.disruption.budgets | [{nodes: '0', reasons: [Drifted]}] |
    And a pod "single" that asks for 1 CPU is created
    And pod "single" is Running within 3m
    When pod "single" is deleted
    Then the NodeClaim is deleted within 90s

  @disruption.empty-nodes-in-parallel
  Scenario: Empty nodes go together once the budget allows it
    Given the manifest "node-pool-both-markets.yaml" is applied with
      | spec.disruption.budgets         | [{nodes: '0'}]                                                                                                                                    |
      | spec.template.spec.requirements | [{key: karpenter.k8s.aws/instance-size, operator: In, values: [large]}, {key: karpenter.k8s.aws/instance-family, operator: In, values: [c5, m5]}] |
    And the manifest "nginx.yaml" is applied
    And all 10 pods of Deployment "nginx" are Running within 3m
    And exactly 4 NodeClaims exists within 1s
    When Deployment "nginx" is deleted
    And 3m passes
    And the manifest "node-pool-both-markets.yaml" is applied with
      | spec.disruption.budgets         | [{nodes: 100%}]                                                                                                                                   |
      | spec.template.spec.requirements | [{key: karpenter.k8s.aws/instance-size, operator: In, values: [large]}, {key: karpenter.k8s.aws/instance-family, operator: In, values: [c5, m5]}] |
    Then all NodeClaims are deleted within 30s, no more than 5s apart
