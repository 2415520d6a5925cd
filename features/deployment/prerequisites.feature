Feature: What an installation needs
  A step of the set-up that was left out is named by the controller, and making up for it needs no restart.

  @essential @operations.settings-precedence-and-defaults
  Scenario: Without the cluster's name the controller ends at once and says which setting is missing
    Given a cluster set up as the guides describe, its controller not yet started
    And environment variable "CLUSTER_NAME" of the controller is not set
    Then the controller does not start and says "cluster-name"

  @essential @deployment.crds-first-and-matching
  Scenario: CRDs that are installed after the controller are found
    Given a cluster set up as the guides describe, its controller not yet started
    And the CRDs are not installed
    When the controller is started
    Then the manifest "node-pool.yaml" is refused with "no matches for kind"
    When 2m passes
    And the CRDs are installed
    And the manifest "ec2-node-class.yaml" is applied
    And the manifest "node-pool-both-markets.yaml" is applied
    And a pod "single" that asks for 1 CPU is created
    Then pod "single" is Running within 3m

  @extension @deployment.crds-first-and-matching
  Scenario: Each missing CRD is named in the log
    Given a cluster set up as the guides describe, its controller not yet started
    And the CRDs are not installed
    When the controller is started
    Then within 1m the controller logs an error that contains "nodepools.karpenter.sh"
    And within 1m the controller logs an error that contains "nodeclaims.karpenter.sh"
    And within 1m the controller logs an error that contains "ec2nodeclasses.karpenter.k8s.aws"
    And the controller logs an error that contains "a CustomResourceDefinition is not installed"
    When the CRDs are installed
    And 1m passes
    Then no NodeClaim exists

  @interruption.disabled-without-queue
  Scenario: Without a queue no notice is heard, and SQS is not asked
    Given a cluster set up as the guides describe, its controller not yet started
    And environment variable "INTERRUPTION_QUEUE" of the controller is not set
    And the controller is started
    And the manifest "ec2-node-class.yaml" is applied
    And the manifest "node-pool-both-markets.yaml" is applied
    And a pod "single" that asks for 1 CPU is created
    And pod "single" is Running within 3m
    When a spot interruption message arrives for the instance
    And 5m passes
    Then the NodeClaim still exists
    And no call of sqs was made by the controller

  @extension @interruption.disabled-without-queue
  Scenario: That no notices are heard is said at the start
    Given a cluster set up as the guides describe, its controller not yet started
    And environment variable "INTERRUPTION_QUEUE" of the controller is not set
    When the controller is started
    And 10s passes
    Then exactly 1 warning of the controller's log contains "no interruption queue is set"

  @interruption.missing-queue-errors
  Scenario: A queue that does not exist is complained about, and heard once it is made
    Given a cluster set up as the guides describe, its controller not yet started
    And the interruption queue does not exist
    And the controller is started
    And the manifest "ec2-node-class.yaml" is applied
    And the manifest "node-pool-both-markets.yaml" is applied
    And a pod "single" that asks for 1 CPU is created
    And pod "single" is Running within 3m
    Then within 1m the controller logs an error that contains "NonExistentQueue"
    When the interruption queue is created
    And a spot interruption message arrives for the instance
    Then the NodeClaim is deleted within 70s
    And the interruption queue is empty within 10s

  @interruption.queue-setting-is-a-name @without-iam
  Scenario: The queue is set by its name; an ARN is no name
    Given a cluster set up as the guides describe, its controller not yet started
    And environment variable "INTERRUPTION_QUEUE" of the controller is "arn:aws:sqs:us-west-2:123456789012:demo"
    When the controller is started
    Then within 1m the controller logs an error that contains "NonExistentQueue"

  @extension @interruption.queue-setting-is-a-name @without-iam
  Scenario: A queue that is set by its ARN is told at the start
    Given a cluster set up as the guides describe, its controller not yet started
    And environment variable "INTERRUPTION_QUEUE" of the controller is "arn:aws:sqs:us-west-2:123456789012:demo"
    When the controller is started
    And 10s passes
    Then exactly 1 warning of the controller's log contains "--interruption-queue is the queue's name, not its ARN or URL"
