Feature: EC2 in trouble
  EC2 throttles, and now and then answers with errors for an hour. What runs is left alone, what was asked for waits, and
  everything goes on by itself afterwards.

  Background:
    Given a cluster set up as the guides describe
    And the manifest "ec2-node-class.yaml" is applied

  @field-report-7
  Scenario: A throttled launch is tried again, not failed for every pod that waits
    Given the manifest "node-pool.yaml" is applied with
      | spec.template.spec.requirements | [{key: karpenter.k8s.aws/instance-family, operator: In, values: [m5]}, {key: karpenter.k8s.aws/instance-cpu, operator: In, values: ["8"]}, {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}] |
    And the first 4 calls of EC2 action "CreateFleet" fail with "RequestLimitExceeded"
    When the manifest "nginx.yaml" is applied with
      | spec.replicas | 2000 |
      | spec.template.spec.containers | [{name: nginx, image: nginx, resources: {requests: {cpu: 100m}}}] |
    Then all 2000 pods of Deployment "nginx" are Running within 10m
    And metric "karpenter_nodeclaims_created_total" is at most 40
    And EC2 action "CreateFleet" was called between 6 and 60 times

  @field-report-9
  Scenario: An hour of errors from the launch templates' calls costs nothing but time
    Given the manifest "node-pool.yaml" is applied
    And the manifest "ec2-node-class.yaml" is applied with
      | metadata.name | second |
    And the manifest "node-pool.yaml" is applied with
      | metadata.name                         | second |
      | spec.template.spec.nodeClassRef.name  | second |
    And a pod "before" that asks for 1 CPU on a node with "karpenter.sh/nodepool: default" is created
    And pod "before" is Running within 3m
    When EC2 action "CreateLaunchTemplate" fails with "InternalError"
    And EC2 action "DescribeLaunchTemplates" fails with "RequestLimitExceeded"
    And a pod "waiting" that asks for 1 CPU on a node with "karpenter.sh/nodepool: second" is created
    And 60m passes
    Then pod "before" is Running
    And pod "waiting" is Pending
    And metric "karpenter_nodeclaims_created_total" is at most 14
    And after 1m exactly 1 instance is running
    When EC2 carries out every call again
    Then pod "waiting" is Running within 10m
