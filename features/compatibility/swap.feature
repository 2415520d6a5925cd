Feature: Another controller takes over
  Whoever changes from one controller to the other, or back, keeps every node: the cluster and the cloud are left as they are,
  nothing drifts, nothing is replaced, and nothing is left behind.

  Background:
    Given a cluster set up as the guides describe
    And the manifest "two-pools.yaml" is applied
    And all 2 pods of Deployment "spot" are Running within 4m
    And all 2 pods of Deployment "on-demand" are Running within 4m
    And exactly 4 NodeClaims exists within 1m
    And all NodeClaims are settled within 2m

  @second-controller
  Scenario: The nodes of one controller stay when the other takes over, and what it made in the cloud is cleared away
    When the other controller takes over
    Then it leads by the same lease within 60s
    And nothing has drifted or been replaced for 4m
    And every NodeClaim carries the hashes of its NodePool and EC2NodeClass within 1s
    And every instance profile is one that an EC2NodeClass uses
    And no launch template is left within 4m

  @second-controller
  Scenario: The other controller adds to what it found, takes away from it, and hands all of it back
    When the other controller takes over
    Then it leads by the same lease within 60s
    When Deployment "spot" is scaled to 3
    Then all 3 pods of Deployment "spot" are Running within 4m
    And exactly 5 NodeClaims exists within 10s
    And 4 nodes of before are still there
    When Deployment "on-demand" is deleted
    Then exactly 3 NodeClaims exists within 3m
    And 2 nodes of before are still there
    And all NodeClaims are settled within 2m
    When the other controller takes over
    Then it leads by the same lease within 60s
    And nothing has drifted or been replaced for 90s
    When Deployment "spot" is scaled to 4
    Then all 4 pods of Deployment "spot" are Running within 4m
    And exactly 4 NodeClaims exists within 10s
    And 3 nodes of before are still there
    When Deployment "spot" is deleted
    Then no NodeClaim exists within 3m
    And every instance profile is one that an EC2NodeClass uses
    And no launch template is left within 4m

  @second-controller
  Scenario: A controller that follows another leaves a node that is just being launched its way
    When Deployment "spot" is scaled to 3
    And the other controller takes over as soon as 5 instances are launched
    Then it leads by the same lease within 60s
    And all 3 pods of Deployment "spot" are Running within 4m
    And exactly 5 NodeClaims exists within 10s
    And 4 nodes of before are still there
    And no launch template is left within 6m

  Scenario: Hashes of another version are brought up to date and replace nothing
    When all hashes are of a version that is no longer known
    Then every NodeClaim carries the hashes of its NodePool and EC2NodeClass within 1m
    And nothing drifts or is replaced for 1m
