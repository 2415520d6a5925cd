Feature: Which image nodes run
  An alias names a family of images and a version. A version that is pinned stays, whatever is published; "latest" follows.

  Background:
    Given a cluster set up as the guides describe

  @essential @node_classes.ami-alias
  Scenario: A pinned alias launches that release, although a newer one is there
    Given the manifest "ec2-node-class.yaml" is applied with
      | spec.amiSelectorTerms | [{alias: al2023@v20251120}] |
    And the manifest "node-pool.yaml" is applied
    When a pod "single" that asks for 1 CPU is created
    Then exactly 1 NodeClaim is launched within 1m
    And the name of the instance's image ends in "v20251120"

  @node_classes.ami-alias @clock
  Scenario Outline: A release that is published later concerns <alias>: nodes run <release>
    Given the manifest "ec2-node-class.yaml" is applied with
      | spec.amiSelectorTerms | [{alias: <alias>}] |
    And the manifest "node-pool.yaml" is applied
    When images of release "20260101" are published
    And 35m passes
    And a pod "single" that asks for 1 CPU is created
    Then exactly 1 NodeClaim is launched within 1m
    And the name of the instance's image ends in "v<release>"

    Examples:
      | alias            | release  |
      | al2023@latest    | 20260101 |
      | al2023@v20251217 | 20251217 |

  @node_classes.ami-none-found
  Scenario: Without an image nothing is launched, and the class says so
    Given the manifest "ec2-node-class.yaml" is applied with
      | spec.amiFamily        | AL2023                              |
      | spec.amiSelectorTerms | [{tags: {example.com/image: none}}] |
    And the manifest "node-pool.yaml" is applied
    When a pod "single" that asks for 1 CPU is created
    And 1m passes
    Then condition "AMIsReady" of EC2NodeClass "default" is "False" with reason "AMINotFound"
    And condition "Ready" of EC2NodeClass "default" is "False"
    And condition "Ready" of NodePool "default" is "False"
    And EC2 was never asked for an instance
