Feature: A cluster that is already there
  A controller that starts in a cluster full of objects takes them over in any order and serves what waits.

  @essential @whole-catalogue
  Scenario: Two hundred objects that exist before the controller starts do not hinder it
    Given a cluster set up as the guides describe, its controller not yet started
    And 200 objects exist
    And the manifest "ec2-node-class.yaml" is applied
    And the manifest "node-pool.yaml" is applied
    And the manifest "nginx.yaml" is applied
    When the controller is started
    Then exactly 1 NodeClaim is launched within 1m
    And all 10 pods of Deployment "nginx" are Running within 60s of the launch
