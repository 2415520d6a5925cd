Feature: The end of a node class
  A node class stays for as long as a node needs it, and leaves nothing behind in the account.

  @node_classes.delete-waits-for-nodeclaims
  Scenario: A node class goes once its last node is gone, and what was made for it goes with it
    Given a cluster set up as the guides describe
    And the manifest "ec2-node-class.yaml" is applied
    And the manifest "node-pool.yaml" is applied
    And a pod "single" that asks for 1 CPU is created
    And pod "single" is Running within 3m
    When somebody deletes EC2NodeClass "default"
    Then within 30s event "WaitingOnNodeClaimTermination" on EC2NodeClass "default" contains "Waiting"
    And EC2NodeClass "default" still exists
    When somebody deletes NodePool "default"
    Then no NodeClaim exists within 3m
    And EC2NodeClass "default" is gone within 1m
    And no launch template is left within 10s
    And no instance profile is left
