Feature: Limits of a NodePool
  A limit is the protection against a workload that runs away: growth stops there, and whoever waits is told so.

  Background:
    Given a cluster set up as the guides describe
    And the manifest "ec2-node-class.yaml" is applied

  @essential @provisioning.cpu-limit-stops-growth @provisioning.limits-released-on-scale-in
  Scenario: The CPU limit stops growth and says so, and raising it goes on
    Given the manifest "node-pool.yaml" is applied with
      | spec.limits.cpu | 4 |
    When the manifest "nginx.yaml" is applied
    Then exactly 1 NodeClaim is launched within 1m
    And no fleet request offers a type of more than 4 vCPUs
    When 3m passes
    # Of four CPUs some is the kubelet's and the DaemonSets': seven pods of 500m fit.
    Then 7 pods of Deployment "nginx" are Running and 3 are Pending
    And within 1s a Warning event on a pod of Deployment "nginx" contains "all available instance types exceed limits for nodepool"
    And exactly 1 NodeClaim exists within 1s
    And field "status.resources.cpu" of NodePool "default" is "'4'" within 1s
    And metric "karpenter_nodepools_limit" of NodePool "default" with resource_type "cpu" is 4
    And metric "karpenter_nodepools_usage" of NodePool "default" with resource_type "cpu" is 4
    When the manifest "node-pool.yaml" is applied with
      | spec.limits.cpu | 16 |
    Then all 10 pods of Deployment "nginx" are Running within 3m
    And exactly 2 NodeClaims exists within 1s

  @extension @provisioning.cpu-limit-stops-growth
  Scenario: The pod that waits for a limit is told how much it leaves
    Given the manifest "node-pool-both-markets.yaml" is applied with
      | spec.limits.cpu | 1 |
    When a pod "single" that asks for 1 CPU is created
    Then within 1m event "FailedScheduling" on Pod "single" contains "NodePool default: its limits leave "
    And metric "karpenter_scheduler_unschedulable_pods_by_reason" with reason "Limits" is 1

  @provisioning.limits-released-on-scale-in
  Scenario: A node that goes makes room below the limit
    Given the manifest "node-pool.yaml" is applied with
      | spec.limits.cpu | 2 |
    And a pod "first" that asks for 1 CPU is created
    And pod "first" is Running within 3m
    When a pod "second" that asks for 1500m CPU is created
    And 2m passes
    Then pod "second" is Pending
    When pod "first" is deleted
    Then pod "second" is Running within 5m

  @provisioning.limits-any-resource
  Scenario: Memory can be limited like CPU
    Given the manifest "node-pool.yaml" is applied with
      | spec.limits | {memory: 16Gi} |
    When the objects are applied
      """
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: cache, namespace: default}
      spec:
        replicas: 4
        selector: {matchLabels: {app: cache}}
        template:
          metadata: {labels: {app: cache}}
          spec:
            containers:
              - {name: main, image: redis, resources: {requests: {memory: 5Gi}}}
      """
    And 3m passes
    Then 2 pods of Deployment "cache" are Running and 2 are Pending
    And within 1s a Warning event on a pod of Deployment "cache" contains "all available instance types exceed limits for nodepool"

  @provisioning.limits-nodes
  Scenario: The number of nodes can be limited
    Given the manifest "node-pool.yaml" is applied with
      | spec.limits                     | {nodes: 1}                                                                        |
      | spec.template.spec.requirements | [{key: node.kubernetes.io/instance-type, operator: In, values: [m5.large, c5.large]}] |
    And a pod "first" that asks for 1500m CPU is created
    And pod "first" is Running within 3m
    When a pod "second" that asks for 1500m CPU is created
    Then within 1m event "FailedScheduling" on Pod "second" contains "node limits have been exhausted for nodepool"
    When 3m passes
    Then pod "second" is Pending
    And exactly 1 NodeClaim exists within 1s

  @provisioning.limits-eventually-consistent @clock
  Scenario: Many pods at once do not overrun the limit
    Given the manifest "node-pool.yaml" is applied with
      | spec.limits.cpu                 | 16                                                                                                      |
      | spec.template.spec.requirements | [{key: karpenter.k8s.aws/instance-size, operator: In, values: [large]}, {key: karpenter.k8s.aws/instance-family, operator: In, values: [c5, m5]}] |
    When the manifest "nginx.yaml" is applied
    And Deployment "nginx" is scaled to 60
    And 3m passes
    # Eight nodes of two CPUs are the limit.
    Then exactly 16 vCPUs run in all
    And exactly 8 NodeClaims exists within 1s
    And after 10m exactly 8 instances is running

  @field-report-13 @provisioning.limits-nodes
  Scenario: A limit of 608 nodes holds under a large batch that keeps growing
    Given the manifest "node-pool.yaml" is applied with
      | spec.limits                     | {nodes: 608}                                                                          |
      | spec.template.spec.requirements | [{key: node.kubernetes.io/instance-type, operator: In, values: [m5.large, c5.large]}] |
    # One pod fills a node.
    When the objects are applied
      """
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: wide, namespace: default}
      spec:
        replicas: 400
        selector: {matchLabels: {app: wide}}
        template:
          metadata: {labels: {app: wide}}
          spec:
            containers:
              - {name: main, image: web, resources: {requests: {cpu: 1500m}}}
      """
    And 2s passes
    And Deployment "wide" is scaled to 700
    Then exactly 608 NodeClaims exists within 3m
    When 3m passes
    Then 608 pods of Deployment "wide" are Running and 92 are Pending
    And after 1m exactly 608 instances is running
    And within 1s a Warning event on a pod of Deployment "wide" contains "node limits have been exhausted for nodepool"
