Feature: Restarts lose nothing
  The controller may be stopped, killed or replaced at any moment; what it had begun is finished by its successor.

  Background:
    Given a cluster set up as the guides describe
    And the manifest "ec2-node-class.yaml" is applied
    And the manifest "node-pool.yaml" is applied

  Scenario: A controller that is killed right after a launch does not launch twice
    When the manifest "nginx.yaml" is applied
    And the controller is killed as soon as an instance is launched
    And the controller is started again
    Then all 10 pods of Deployment "nginx" are Running within 5m
    And after 5m exactly 1 instance is running
    And exactly 1 CreateFleet call of type "instant" asked for 1 spot instance with strategy "price-capacity-optimized"

  @resilience.leader-election
  Scenario: A second replica takes over from a leader that was killed
    Given a second replica of the controller runs
    When the manifest "nginx.yaml" is applied
    And the leading replica is killed
    Then another replica leads within 25s
    And all 10 pods of Deployment "nginx" are Running within 5m
    And after 5m exactly 1 instance is running
    And exactly 1 CreateFleet call of type "instant" asked for 1 spot instance with strategy "price-capacity-optimized"

  @resilience.orphan-instance-removed
  Scenario: An instance of this cluster without NodeClaim is terminated, one of another cluster is not
    Given an instance tagged as a node of cluster "demo" without NodeClaim
    And an instance tagged as a node of cluster "other" without NodeClaim
    When 3m passes
    Then the instance of cluster "demo" is terminated
    And the instance of cluster "other" is running

  @resilience.vanished-instance-cleaned-up
  Scenario: An instance that is terminated from outside is replaced
    Given the manifest "nginx.yaml" is applied
    And all 10 pods of Deployment "nginx" are Running within 3m
    When the instance is terminated through the EC2 API
    Then all 10 pods of Deployment "nginx" are Running on another node within 10m
    And exactly 1 NodeClaim exists within 5m
