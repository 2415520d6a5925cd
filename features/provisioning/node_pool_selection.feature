Feature: Which NodePool serves a pod
  Only a NodePool that is ready takes part; without one nothing is launched, and the log says so.

  Background:
    Given a cluster set up as the guides describe

  @provisioning.no-nodepool-no-action
  Scenario: Without a NodePool nothing happens
    When a pod "single" that asks for 1 CPU is created
    And 1m passes
    Then no NodeClaim exists
    And EC2 was never asked for an instance
    And pod "single" is Pending
    And the controller logs "no dynamic nodepools found"

  @provisioning.not-ready-pool-skipped
  Scenario: A NodePool waits for its class
    Given the manifest "node-pool.yaml" is applied
    When a pod "single" that asks for 1 CPU is created
    And 1m passes
    Then no NodeClaim exists
    And condition "NodeClassReady" of NodePool "default" is "False" with reason "NodeClassNotFound"
    When the manifest "ec2-node-class.yaml" is applied
    Then exactly 1 NodeClaim is launched within 2m
