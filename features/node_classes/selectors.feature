Feature: Selectors that match nothing
  The most common trouble of all: subnets or the security group lack the discovery tag. Nothing may be launched, the
  class says what is missing, and adding the tag repairs it without a restart.

  @essential @node_classes.subnets-missing-tag
  Scenario: No subnet carries the tag
    Given a cluster set up as the guides describe
    And the subnets carry the discovery tag with value "another-cluster"
    And the manifest "ec2-node-class.yaml" is applied
    And the manifest "node-pool.yaml" is applied
    When the manifest "nginx.yaml" is applied
    And 5m passes
    Then condition "SubnetsReady" of EC2NodeClass "default" is "False" with reason "SubnetsNotFound" and message "SubnetSelector did not match any Subnets"
    And condition "Ready" of EC2NodeClass "default" is "False"
    And condition "Ready" of NodePool "default" is "False"
    And EC2 was never asked for an instance
    And all 10 pods of Deployment "nginx" are Pending
    When the subnets carry the discovery tag with value "demo"
    Then status.subnets of EC2NodeClass "default" has 3 entries within 90s
    And exactly 1 NodeClaim is launched within 2m
    And all 10 pods of Deployment "nginx" are Running within 60s of the launch

  @essential @node_classes.security-groups-missing-tag
  Scenario: No security group carries the tag
    Given a cluster set up as the guides describe
    And the security group carries the discovery tag with value "another-cluster"
    And the manifest "ec2-node-class.yaml" is applied
    And the manifest "node-pool.yaml" is applied
    When the manifest "nginx.yaml" is applied
    And 5m passes
    Then condition "SecurityGroupsReady" of EC2NodeClass "default" is "False" with reason "SecurityGroupsNotFound" and message "SecurityGroupSelector did not match any SecurityGroups"
    And condition "Ready" of EC2NodeClass "default" is "False"
    And condition "Ready" of NodePool "default" is "False"
    And EC2 was never asked for an instance
    And all 10 pods of Deployment "nginx" are Pending
    When the security group carries the discovery tag with value "demo"
    Then status.securityGroups of EC2NodeClass "default" has 1 entry within 90s
    And exactly 1 NodeClaim is launched within 2m
    And all 10 pods of Deployment "nginx" are Running within 60s of the launch

  @essential @extension @field-report-43 @node_classes.subnets-missing-tag
  Scenario: The operator is told which selector found no subnets, and what nearly matched
    Given a cluster set up as the guides describe
    And the subnets carry the discovery tag with value "another-cluster"
    And the manifest "ec2-node-class.yaml" is applied
    And the manifest "node-pool.yaml" is applied
    When the manifest "nginx.yaml" is applied
    Then within 2m a Warning event on EC2NodeClass "default" contains "3 subnets carry the key karpenter.sh/discovery with another value"
    And within 2m a Warning event on a pod of Deployment "nginx" contains "3 subnets carry the key karpenter.sh/discovery with another value"
    And the controller logs an error that contains "3 subnets carry the key karpenter.sh/discovery with another value"

  @essential @extension @field-report-45 @node_classes.security-groups-missing-tag
  Scenario: The operator is told which selector found no security group, and what nearly matched
    Given a cluster set up as the guides describe
    And the security group carries the discovery tag with value "another-cluster"
    And the manifest "ec2-node-class.yaml" is applied
    And the manifest "node-pool.yaml" is applied
    When the manifest "nginx.yaml" is applied
    Then within 2m a Warning event on EC2NodeClass "default" contains "1 security group carries the key karpenter.sh/discovery with another value"
    And within 2m a Warning event on a pod of Deployment "nginx" contains "1 security group carries the key karpenter.sh/discovery with another value"
    And the controller logs an error that contains "1 security group carries the key karpenter.sh/discovery with another value"

  @essential @node_classes.partial-tags-limit-zones
  Scenario: Zones without a tagged subnet get no nodes
    Given a cluster set up as the guides describe
    And the subnets carry the discovery tag with value "another-cluster"
    And the subnet in zone "us-west-2a" carries the discovery tag with value "demo"
    And the subnet in zone "us-west-2b" carries the discovery tag with value "demo"
    And the manifest "ec2-node-class.yaml" is applied
    And the manifest "node-pool.yaml" is applied
    When a pod "in-a" that asks for 1 CPU on a node with "topology.kubernetes.io/zone: us-west-2a" is created
    And a pod "in-b" that asks for 1 CPU on a node with "topology.kubernetes.io/zone: us-west-2b" is created
    And a pod "in-c" that asks for 1 CPU on a node with "topology.kubernetes.io/zone: us-west-2c" is created
    Then pod "in-a" is Running within 3m
    And pod "in-b" is Running within 1m
    And pod "in-c" is Pending
    And within 1s event "FailedScheduling" on Pod "in-c" contains "no instance type"

  @node_classes.selector-terms-or-and
  Scenario Outline: Terms add up, and the tags of one term must all be there: <terms>
    Given a cluster set up as the guides describe
    And the manifest "ec2-node-class.yaml" is applied with
      | spec.subnetSelectorTerms | <terms> |
    Then status.subnets of EC2NodeClass "default" has <subnets> entries within 30s

    Examples:
      | terms                                                                                                        | subnets |
      | [{tags: {karpenter.sh/discovery: '*'}}]                                                                      | 3       |
      | [{tags: {Name: '*us-west-2a'}}, {tags: {Name: '*us-west-2b'}}]                                               | 2       |
      | [{tags: {karpenter.sh/discovery: demo, Name: '*us-west-2c'}}]                                                | 1       |
      | [{tags: {karpenter.sh/discovery: other, Name: '*us-west-2c'}}]                                               | 0       |
      | [{tags: {karpenter.sh/discovery: demo, Name: '*us-west-2c'}}, {tags: {Name: demo/SubnetPrivateus-west-2a}}] | 2       |

  @node_classes.all-matching-security-groups-attached
  Scenario: Every security group that matches is attached
    Given a cluster set up as the guides describe
    And the manifest "ec2-node-class.yaml" is applied with
      | spec.securityGroupSelectorTerms | [{tags: {karpenter.sh/discovery: demo}}, {name: default}] |
    And the manifest "node-pool.yaml" is applied
    When a pod "single" that asks for 1 CPU is created
    Then exactly 1 NodeClaim is launched within 1m
    And the instance has the security groups "default, eks-cluster-sg-demo"
