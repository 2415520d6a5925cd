Feature: Nodes join the cluster
  An instance becomes a node when the cluster admits the role of its instance profile: by an access entry, or by the
  ConfigMap aws-auth as clusters did before. What is not admitted is given up after a quarter of an hour.

  Background:
    Given a cluster set up as the guides describe
    And the manifest "ec2-node-class.yaml" is applied

  @essential @provisioning.node-up-in-about-thirty-seconds
  Scenario: A node is Ready about half a minute after its launch
    Given the manifest "node-pool.yaml" is applied
    When the manifest "nginx.yaml" is applied
    And exactly 1 NodeClaim is launched within 12s
    Then the node is Ready between 20s and 50s after the launch
    And all 10 pods of Deployment "nginx" run on that node within 60s of the launch

  @essential @lifecycle.node-role-not-mapped @lifecycle.registration-timeout @clock
  Scenario: A node whose role the cluster does not admit never joins, and is given up after fifteen minutes
    Given the manifest "node-pool-both-markets.yaml" is applied
    And the node role has neither access entry nor aws-auth mapping
    When the manifest "nginx.yaml" is applied
    Then exactly 1 NodeClaim is launched within 1m
    And condition "Registered" of the NodeClaim is "Unknown" with reason "NodeNotFound" within 2m
    When 12m passes
    Then the NodeClaim still exists
    And the NodeClaim is deleted within 4m
    And metric "karpenter_nodeclaims_disrupted_total" with reason "registration_timeout" is 1
    When the node role is given an access entry
    Then all 10 pods of Deployment "nginx" are Running within 20m

  @deployment.node-auth-access-entry-or-configmap
  Scenario: An access entry alone lets nodes join
    Given the manifest "node-pool-both-markets.yaml" is applied
    When a pod "single" that asks for 1 CPU is created
    Then pod "single" is Running within 90s

  @essential @deployment.node-auth-access-entry-or-configmap
  Scenario: A mapping in aws-auth alone lets nodes join
    Given the manifest "node-pool-both-markets.yaml" is applied
    And the node role has neither access entry nor aws-auth mapping
    And the node role is mapped by aws-auth
    When a pod "single" that asks for 1 CPU is created
    Then pod "single" is Running within 90s

  @deployment.node-auth-access-entry-or-configmap
  Scenario: Both at once do no harm
    Given the manifest "node-pool-both-markets.yaml" is applied
    And the node role is mapped by aws-auth
    When a pod "single" that asks for 1 CPU is created
    Then pod "single" is Running within 90s
