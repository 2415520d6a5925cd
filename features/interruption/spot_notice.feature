Feature: Spot notices
  Two minutes before EC2 takes a spot instance back it says so. In that time the pods move: the node is fenced, a
  replacement starts while the old node drains, and evictions keep to the budgets.

  Background:
    Given a cluster set up as the guides describe
    And the manifest "ec2-node-class.yaml" is applied
    And the manifest "node-pool.yaml" is applied

  @essential @interruption.spot-notice-drains-before-reclaim
  Scenario: All pods run elsewhere before the instance is reclaimed
    Given the manifest "nginx.yaml" is applied
    And all 10 pods of Deployment "nginx" are Running within 3m
    When a spot interruption notice arrives for the instance
    Then the node has the taint "karpenter.sh/disrupted:NoSchedule" within 10s
    And the NodeClaim is deleted within 10s
    And event "SpotInterrupted" is published on the node
    And all 10 pods of Deployment "nginx" are Running on another node within 120s of the notice
    And the pods left the node by eviction
    And the interruption queue is empty
    And no fleet request within 3m of the notice contains the spot offering of the instance
    And metric "karpenter_nodeclaims_disrupted_total" with reason "spot_interrupted" is 1

  @essential @interruption.replacement-starts-in-parallel
  Scenario: The replacement starts while the old pods still shut down
    Given the manifest "slow.yaml" is applied
    And all 4 pods of Deployment "slow" are Running within 3m
    When a spot interruption notice arrives for the instance
    Then a second NodeClaim is created within 20s of the notice, while the old pods shut down
    And all 4 pods of Deployment "slow" are Running on another node within 120s of the notice

  @essential @interruption.pdb-still-honoured
  Scenario: A budget of one at a time is kept to
    Given the manifest "web.yaml" is applied
    And all 4 pods of Deployment "web" are Running within 3m
    When a spot interruption notice arrives for the instance
    Then at no time until the reclaim is more than 1 pod of Deployment "web" missing
    And the pods left the node by eviction until the reclaim
    And all 4 pods of Deployment "web" are Running on another node within 120s of the notice

  @essential @interruption.pdb-still-honoured
  Scenario: What a budget still holds when the instance goes is scheduled again
    Given the manifest "web.yaml" is applied
    And all 4 pods of Deployment "web" are Running within 3m
    And spot capacity is exhausted
    When a spot interruption notice arrives for the instance
    Then at no time until the reclaim is more than 1 pod of Deployment "web" missing
    And the pods left the node by eviction until the reclaim
    And the instance is reclaimed 120s after the notice
    When spot capacity is restored
    Then all 4 pods of Deployment "web" are Running on another node within 10m of the notice

  @interruption.message-deleted-after-handling
  Scenario: Every message is handled once and deleted, also of instances that are not ours
    When 25 interruption messages of mixed kinds arrive
    Then the interruption queue is empty within 1m
    And metric "karpenter_interruption_received_messages_total" is 25
    And metric "karpenter_interruption_deleted_messages_total" is 25
    And metric "karpenter_interruption_message_queue_duration_seconds_count" is at least 1

  @interruption.rebalance-only-event
  Scenario: A rebalance recommendation is told and not acted upon
    Given the manifest "nginx.yaml" is applied
    And all 10 pods of Deployment "nginx" are Running within 3m
    When a rebalance recommendation arrives for the instance
    Then event "SpotRebalanceRecommendation" is published on the node
    And the interruption queue is empty within 1m
    When 5m passes
    Then the NodeClaim still exists
    And the node is not tainted "karpenter.sh/disrupted:NoSchedule"

  Scenario: A malformed message does not stop the loop
    Given the manifest "nginx.yaml" is applied
    And all 10 pods of Deployment "nginx" are Running within 3m
    When a message "{not json" is put into the interruption queue
    And a spot interruption notice arrives for the instance
    Then the node has the taint "karpenter.sh/disrupted:NoSchedule" within 10s
    And the interruption queue is empty within 1m
    And the controller logs "failed parsing interruption message"
