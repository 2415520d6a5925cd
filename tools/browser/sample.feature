Feature: A report worth checking
  One of every kind that a report has to show; the first fails on purpose, with markup in its message.

  Background:
    Given a cluster set up as the guides describe
    And the manifest "ec2-node-class.yaml" is applied
    And the manifest "node-pool.yaml" is applied

  @sample @provisioning.pending-pod-creates-node @mine.no-row
  Scenario: Fails with </script><img src=x onerror=alert(1)> in its message
    When the manifest "nginx.yaml" is applied
    Then all 10 pods of Deployment "nginx" are Running within 3m
    And event "</script><img src=x onerror=alert(1)>" is published on the node
    And the NodeClaim still exists

  @sample @interruption.spot-notice-drains-before-reclaim
  Scenario: A notice, evictions and a second node
    Given the manifest "web.yaml" is applied
    And all 4 pods of Deployment "web" are Running within 3m
    When a spot interruption notice arrives for the instance
    Then all 4 pods of Deployment "web" are Running on another node within 120s of the notice

  @sample @large
  Scenario: Two hundred pods are drawn as an area
    Given the manifest "many.yaml" is applied
    Then all 200 pods of Deployment "many" are Running within 10m

  @sample @quiet
  Scenario: Two quiet hours are drawn short
    Given the manifest "nginx.yaml" is applied
    And all 10 pods of Deployment "nginx" are Running within 3m
    When 2h passes
    Then the NodeClaim still exists

  @sample @empty
  Scenario: Hardly anything happens
    Then no NodeClaim exists
