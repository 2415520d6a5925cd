Feature: A quiet cluster is quiet
  A controller that has nothing to do asks little of the API server and of AWS, and is awake when something happens.

  @slow @quiet-day
  Scenario: A day without changes, and an interruption at its end
    Given a cluster set up as the guides describe
    And the manifest "ec2-node-class.yaml" is applied
    And the manifest "node-pool.yaml" is applied
    And the manifest "nginx.yaml" is applied
    And all 10 pods of Deployment "nginx" are Running within 3m
    When 24h passes
    Then the NodeClaim still exists
    When a spot interruption notice arrives for the instance
    Then the node has the taint "karpenter.sh/disrupted:NoSchedule" within 10s
    And all 10 pods of Deployment "nginx" are Running on another node within 120s of the notice
