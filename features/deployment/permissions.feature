Feature: What the controller is allowed
  In AWS the policies of deploy/cloudformation, in Kubernetes the roles of the chart: both are enough for the whole life of a
  node, and what is missing is named. `trysquare permissions --check` shows that none of them can be left out.

  @deployment.works-within-documented-iam @iam
  Scenario: The policies of the stack are enough for a node's whole life
    Given a cluster set up as the guides describe
    And the manifest "ec2-node-class.yaml" is applied
    And the manifest "node-pool-both-markets.yaml" is applied
    And the manifest "nginx.yaml" is applied
    And all 10 pods of Deployment "nginx" are Running within 3m
    When a spot interruption notice arrives for the instance
    Then all 10 pods of Deployment "nginx" are Running on another node within 3m
    When somebody deletes NodePool "default"
    Then no NodeClaim exists within 5m
    And every launch and launch template carries the tags "kubernetes.io/cluster/demo", "eks:eks-cluster-name" and "karpenter.sh/nodepool"
    And no call of the controller was refused

  @deployment.oidc-provider-missing @deployment.credentials-by-role @iam @web-identity
  Scenario: Without the cluster's OIDC provider the controller ends and says which call was denied for whom
    Given a cluster set up as the guides describe, its controller not yet started
    And the cluster's OIDC provider is not associated with the account
    Then the controller does not start and says "No OpenIDConnect provider found in your account for https://"
    And the controller's log names "AssumeRoleWithWebIdentity" and "KarpenterControllerRole-demo"
    And no NodeClaim exists
    When the cluster's OIDC provider is associated with the account
    And the controller is started
    And the manifest "ec2-node-class.yaml" is applied
    And the manifest "node-pool.yaml" is applied
    And a pod "single" that asks for 1 CPU is created
    Then pod "single" is Running within 3m
    And no access key stands in the controller's environment
