@whole-catalogue
Feature: Which instance is bought
  Of all types that satisfy NodePool and pods, the cheapest is bought on demand, and on the spot market one that is cheap
  and likely to stay.

  Background:
    Given a cluster set up as the guides describe
    And the manifest "ec2-node-class.yaml" is applied

  # In us-west-2 on demand: c5.large costs 0.085, m5.large 0.096, r5.large 0.126 dollars an hour; they have 4, 8 and 16 GiB.
  @provisioning.cheapest-fitting-type-on-demand
  Scenario Outline: A pod of <memory> is given the cheapest type that holds it
    Given the manifest "node-pool.yaml" is applied with
      | spec.template.spec.requirements | [{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}, {key: node.kubernetes.io/instance-type, operator: In, values: [r5.large, m5.large, c5.large]}] |
    When the objects are applied
      """
      apiVersion: v1
      kind: Pod
      metadata: {name: single, namespace: default}
      spec:
        containers:
          - {name: main, image: nginx, resources: {requests: {cpu: "1", memory: <memory>}}}
      """
    Then exactly 1 NodeClaim is launched within 1m
    And the instance is an on-demand instance
    And the instance is of type "<type>"
    And pod "single" is Running within 60s of the launch

    Examples:
      | memory | type     |
      | 1Gi    | c5.large |
      | 5Gi    | m5.large |
      | 10Gi   | r5.large |

  @essential @provisioning.cheapest-fitting-type-on-demand
  Scenario: On demand the lowest price decides
    Given the manifest "node-pool-both-markets.yaml" is applied with
      | spec.template.spec.requirements | [{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}, {key: karpenter.k8s.aws/instance-family, operator: In, values: [c5, m5, r5]}, {key: kubernetes.io/arch, operator: In, values: [amd64]}] |
    When the manifest "nginx.yaml" is applied
    Then exactly 1 NodeClaim is launched within 1m
    And exactly 1 CreateFleet call of type "instant" asked for 1 on-demand instance with strategy "lowest-price"
    # Ten pods of 500m and the DaemonSets need more than 5 CPUs: of 8 vCPUs, the c5 costs least.
    And the instance is of type "c5.2xlarge"

  @provisioning.types-chosen-from-families @provisioning.up-to-sixty-types-offered
  Scenario: EC2 is offered many types of the families allowed
    Given the manifest "node-pool.yaml" is applied
    When a pod "single" that asks for 1 CPU is created
    Then exactly 1 NodeClaim is launched within 1m
    And every fleet request offers between 15 and 60 types
    And every type that a fleet request offers is of category "c, m, r" and a generation above 2
    And the instance is a spot instance of category "c", "m" or "r" and a generation above 2

  @provisioning.exotic-types-last
  Scenario Outline: A bare-metal type is bought only where nothing else is allowed: <types>
    Given the manifest "node-pool.yaml" is applied with
      | spec.template.spec.requirements | [{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}, {key: node.kubernetes.io/instance-type, operator: In, values: [<types>]}] |
    When a pod "single" that asks for 1 CPU is created
    Then exactly 1 NodeClaim is launched within 1m
    And the instance is of type "<bought>"
    And no fleet request offers type "<not offered>"

    Examples:
      | types              | bought   | not offered |
      | m5.large, m5.metal | m5.large | m5.metal    |
      | m5.metal           | m5.metal | m5.large    |

  @provisioning.requests-decide-size
  Scenario: Requests decide the size, limits do not
    Given the manifest "node-pool-both-markets.yaml" is applied with
      | spec.template.spec.requirements | [{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}, {key: karpenter.k8s.aws/instance-family, operator: In, values: [m5]}] |
    When the objects are applied
      """
      apiVersion: v1
      kind: Pod
      metadata: {name: greedy, namespace: default}
      spec:
        containers:
          - name: main
            image: nginx
            resources: {requests: {cpu: 500m, memory: 128Mi}, limits: {cpu: "8", memory: 32Gi}}
      """
    Then exactly 1 NodeClaim is launched within 1m
    And the instance is of type "m5.large"
    # The pod's 500m, and 150m of the two DaemonSets of every EKS node.
    And field "spec.resources.requests.cpu" of the NodeClaim is "650m"

  @provisioning.single-pool-many-shapes
  Scenario: One NodePool serves large, small and ARM workloads
    Given the manifest "node-pool.yaml" is applied with
      | spec.template.spec.requirements | [{key: kubernetes.io/arch, operator: In, values: [amd64, arm64]}, {key: karpenter.k8s.aws/instance-category, operator: In, values: [c, m, r]}, {key: karpenter.sh/capacity-type, operator: In, values: [spot]}] |
    When the objects are applied
      """
      apiVersion: v1
      kind: Pod
      metadata: {name: large, namespace: default}
      spec:
        nodeSelector: {kubernetes.io/arch: amd64}
        containers:
          - {name: main, image: nginx, resources: {requests: {cpu: "1", memory: 64Gi}}}
      ---
      apiVersion: v1
      kind: Pod
      metadata: {name: arm, namespace: default}
      spec:
        nodeSelector: {kubernetes.io/arch: arm64}
        containers:
          - {name: main, image: nginx, resources: {requests: {cpu: "1"}}}
      """
    And the manifest "web.yaml" is applied
    Then pod "large" is Running on a node with "kubernetes.io/arch: amd64, karpenter.sh/nodepool: default" within 3m
    And pod "arm" is Running on a node with "kubernetes.io/arch: arm64, karpenter.sh/nodepool: default" within 1m
    And all 4 pods of Deployment "web" are Running within 1m
