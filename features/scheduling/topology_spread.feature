Feature: Pods spread over domains
  Pods that ask to be spread over zones, hosts, markets or any other label get nodes that let them be.

  Background:
    Given a cluster set up as the guides describe
    And the manifest "ec2-node-class.yaml" is applied

  @essential @provisioning.sixty-pods-three-zones
  Scenario: Sixty small pods over three zones run twenty in each within a minute
    # A node takes 20 to 45 seconds to boot here and the pods then seconds to start; what the controller adds is the batch.
    Given the manifest "node-pool.yaml" is applied
    When a Deployment "small" of 60 pods that ask for 100m CPU is created, spread by
      | topologyKey                 | maxSkew | whenUnsatisfiable | minDomains |
      | topology.kubernetes.io/zone | 1       | DoNotSchedule     | 3          |
    Then within 1s 0 pods of Deployment "small" are Running and 60 is Pending
    And 3 NodeClaims are launched in 3 different zones within 10s
    And EC2 was asked for the first instance within 3s of the first Pending pod of Deployment "small"
    And all 60 pods of Deployment "small" are Running within 1m of the first Pending one, 20 in each of 3 zones
    And exactly 3 NodeClaims exists within 1s

  @essential @whole-catalogue @provisioning.large-memory-pod-adds-node
  Scenario: One pod of 64 GB gets a node of its own that holds it
    Given the manifest "node-pool.yaml" is applied
    And a Deployment "small" of 60 pods that ask for 100m CPU is created, spread by
      | topologyKey                 | maxSkew | whenUnsatisfiable | minDomains |
      | topology.kubernetes.io/zone | 1       | DoNotSchedule     | 3          |
    And all 60 pods of Deployment "small" are Running within 1m, 20 in each of 3 zones
    When a pod "large" that asks for 64Gi memory is created
    Then pod "large" is Running within 1m on a node launched for it
    And the node has at least 64Gi of memory for pods
    And the node has at least 7Gi of memory for each CPU
    And exactly 4 NodeClaims exists within 1s
    And all 60 pods of Deployment "small" are Running within 1s, 20 in each of 3 zones

  @essential @scheduling.spread-zones
  Scenario: Three pods over three zones get three nodes
    Given the manifest "node-pool.yaml" is applied
    When a Deployment "web" of 3 pods that ask for 100m CPU is created, spread by
      | topologyKey                 | maxSkew | whenUnsatisfiable |
      | topology.kubernetes.io/zone | 1       | DoNotSchedule     |
    Then 3 NodeClaims are launched in 3 different zones within 10s
    And exactly 3 NodeClaims exists within 1s

  @scheduling.spread-hostname
  Scenario: Spread over hosts bounds how many of the pods share a node
    Given the manifest "node-pool.yaml" is applied
    When a Deployment "web" of 5 pods that ask for 100m CPU is created, spread by
      | topologyKey            | maxSkew | whenUnsatisfiable | minDomains |
      | kubernetes.io/hostname | 2       | DoNotSchedule     | 3          |
    Then all 5 pods of Deployment "web" are Running within 1m, at most 2 on a node
    And exactly 3 NodeClaims exists within 1s

  @scheduling.spread-capacity-type
  Scenario: Pods are spread over spot and on-demand nodes
    Given the manifest "node-pool-both-markets.yaml" is applied
    When a Deployment "web" of 4 pods that ask for 100m CPU is created, spread by
      | topologyKey                | maxSkew | whenUnsatisfiable | minDomains |
      | karpenter.sh/capacity-type | 1       | DoNotSchedule     | 2          |
    Then all 4 pods of Deployment "web" are Running within 1m
    And the pods of Deployment "web" run where the label "karpenter.sh/capacity-type" has
      | value     | pods |
      | on-demand | 2    |
      | spot      | 2    |
    And exactly 2 NodeClaims exists within 1s

  @scheduling.spread-custom-ratio
  Scenario: A label with four values on spot and one on on-demand splits pods four to one
    Given the objects are applied
      """
      apiVersion: karpenter.sh/v1
      kind: NodePool
      metadata: {name: spot}
      spec:
        template:
          spec:
            requirements:
              - {key: karpenter.sh/capacity-type, operator: In, values: [spot]}
              - {key: capacity-spread, operator: In, values: ["2", "3", "4", "5"]}
            nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      ---
      apiVersion: karpenter.sh/v1
      kind: NodePool
      metadata: {name: on-demand}
      spec:
        template:
          spec:
            requirements:
              - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
              - {key: capacity-spread, operator: In, values: ["1"]}
            nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      """
    When a Deployment "web" of 5 pods that ask for 100m CPU is created, spread by
      | topologyKey     | maxSkew | whenUnsatisfiable | minDomains |
      | capacity-spread | 1       | DoNotSchedule     | 5          |
    Then all 5 pods of Deployment "web" are Running within 1m
    And the pods of Deployment "web" run where the label "capacity-spread" has
      | value | pods |
      | 1     | 1    |
      | 2     | 1    |
      | 3     | 1    |
      | 4     | 1    |
      | 5     | 1    |
    And the pods of Deployment "web" run where the label "karpenter.sh/capacity-type" has
      | value     | pods |
      | on-demand | 1    |
      | spot      | 4    |

  @scheduling.spread-unreachable-domain
  Scenario: A zone that the pods' only NodePool cannot reach counts until the pods rule it out
    Given the manifest "node-pool.yaml" is applied
    And the objects are applied
      """
      apiVersion: karpenter.sh/v1
      kind: NodePool
      metadata: {name: np-zonal-constraint}
      spec:
        template:
          spec:
            requirements:
              - {key: karpenter.sh/capacity-type, operator: In, values: [spot]}
              - {key: topology.kubernetes.io/zone, operator: In, values: [us-west-2a, us-west-2b]}
            nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      """
    When a Deployment "web" of 3 pods that ask for 1100m CPU is created for NodePool "np-zonal-constraint", spread by
      | topologyKey                 | maxSkew | whenUnsatisfiable | minDomains |
      | topology.kubernetes.io/zone | 1       | DoNotSchedule     | 3          |
    Then within 1m 2 pods of Deployment "web" are Running and 1 is Pending
    And a Pending pod of Deployment "web" is told "unsatisfiable topology constraint for topology spread, key=topology.kubernetes.io/zone (counts = us-west-2a: 1, us-west-2b: 1, us-west-2c: 0"
    When 5m passes
    Then within 1s 2 pods of Deployment "web" are Running and 1 is Pending
    And exactly 2 NodeClaims exists within 1s
    When Deployment "web" is deleted
    And a Deployment "narrowed" of 3 pods that ask for 1100m CPU is created for NodePool "np-zonal-constraint" and zones "us-west-2a" and "us-west-2b", spread by
      | topologyKey                 | maxSkew | whenUnsatisfiable | minDomains |
      | topology.kubernetes.io/zone | 1       | DoNotSchedule     | 2          |
    Then all 3 pods of Deployment "narrowed" are Running within 2m

  @scheduling.spread-min-domains
  Scenario: Nodes come up one after the other and minDomains keeps the first from taking all pods
    Given the manifest "node-pool.yaml" is applied
    When a Deployment "web" of 6 pods that ask for 100m CPU is created, spread by
      | topologyKey                 | maxSkew | whenUnsatisfiable | minDomains |
      | topology.kubernetes.io/zone | 1       | DoNotSchedule     | 3          |
    Then all 6 pods of Deployment "web" are Running within 1m, 2 in each of 3 zones

  @scheduling.zones-not-rebalanced @clock
  Scenario: Without spread constraints nodes stay where they are
    Given the manifest "node-pool.yaml" is applied
    When the manifest "nginx.yaml" is applied
    Then exactly 1 NodeClaim is launched within 1m
    And all 10 pods of Deployment "nginx" are Running within 60s of the launch
    When 1h passes
    Then the NodeClaim still exists
    And exactly 1 NodeClaim exists within 1s
    And all 10 pods of Deployment "nginx" are Running within 1s
