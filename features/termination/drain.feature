Feature: The way out of a node
  A node that goes is fenced first, then drained, then its instance is terminated, and only when that is gone the node
  object goes. Pods leave by eviction, and budgets are kept.

  Background:
    Given a cluster set up as the guides describe
    And the manifest "ec2-node-class.yaml" is applied
    And the manifest "node-pool.yaml" is applied

  @termination.node-delete-cascades @termination.disrupted-taint @termination.evictions-respect-pdb
  Scenario: Deleting a node drains it and ends its instance
    Given the manifest "web.yaml" is applied
    And all 4 pods of Deployment "web" are Running within 3m
    When somebody deletes the node
    Then the node has the taint "karpenter.sh/disrupted:NoSchedule" within 5s
    And the NodeClaim is deleted within 5s
    And at no time within 2m is more than 1 pod of Deployment "web" missing
    And all 4 pods of Deployment "web" are Running on another node within 5m
    And the pods left the node by eviction
    And metric "karpenter_pods_eviction_requests_total" with code "200" is at least 4
    And metric "karpenter_pods_eviction_requests_total" with code "429" is at least 1
    And the instance is terminated within 1m
    And the node is gone within 2m
    And exactly 1 NodeClaim exists within 1m

  @termination.nodeclaim-delete-cascades @termination.conditions-reported
  Scenario: Deleting a NodeClaim drains its node and ends its instance
    Given the manifest "web.yaml" is applied
    And all 4 pods of Deployment "web" are Running within 3m
    When somebody deletes the NodeClaim
    Then the node has the taint "karpenter.sh/disrupted:NoSchedule" within 5s
    And condition "Drained" of the NodeClaim is "Unknown" with reason "Draining" within 5s
    And all 4 pods of Deployment "web" are Running on another node within 5m
    And the pods left the node by eviction
    And condition "InstanceTerminating" of the NodeClaim is "True" with reason "InstanceTerminating" within 1m
    And condition "Drained" of the NodeClaim is "True" with reason "Drained" within 1s
    And the node is gone within 2m
    And exactly 1 NodeClaim exists within 1m

  @termination.nodepool-delete-cascades
  Scenario: Deleting a NodePool takes its nodes away and makes no new one
    Given the manifest "nginx.yaml" is applied
    And all 10 pods of Deployment "nginx" are Running within 3m
    When somebody deletes NodePool "default"
    Then the NodeClaim is deleted within 10s
    And the pods left the node by eviction within 1m
    And the instance is terminated within 1m
    And no NodeClaim exists within 2m
    When 2m passes
    Then all 10 pods of Deployment "nginx" are Pending

  @termination.blocking-pdb-waits-forever @clock
  Scenario: A budget that allows nothing holds a node up until it is relaxed
    Given the manifest "web.yaml" is applied
    And all 4 pods of Deployment "web" are Running within 3m
    And the objects are applied
      """
      apiVersion: policy/v1
      kind: PodDisruptionBudget
      metadata: {name: web, namespace: default}
      spec:
        maxUnavailable: 0
        selector: {matchLabels: {app: web}}
      """
    When somebody deletes the node
    And 6h passes
    Then all 4 pods of Deployment "web" are Running within 1s
    And the instance is running
    And within 2m event "FailedDraining" on the node contains "Failed to drain node, 4 pods are waiting to be evicted"
    When the manifest "web.yaml" is applied
    Then all 4 pods of Deployment "web" are Running on another node within 5m
    And the node is gone within 2m

  @termination.instance-gone-skips-drain
  Scenario: There is nothing to drain where the instance is gone
    Given the manifest "web.yaml" is applied
    And all 4 pods of Deployment "web" are Running within 3m
    And the objects are applied
      """
      apiVersion: policy/v1
      kind: PodDisruptionBudget
      metadata: {name: web, namespace: default}
      spec:
        maxUnavailable: 0
        selector: {matchLabels: {app: web}}
      """
    When somebody deletes the node
    And 1m passes
    And the instance is terminated through the EC2 API
    Then the node is gone within 5m
    And all 4 pods of Deployment "web" are Running on another node within 5m

  @termination.grace-period-forces
  Scenario: At the end of a termination grace period a budget gives way
    Given the manifest "node-pool.yaml" is applied with
      | spec.template.spec.terminationGracePeriod | 1m |
    And the manifest "web.yaml" is applied
    And all 4 pods of Deployment "web" are Running within 3m
    And the objects are applied
      """
      apiVersion: policy/v1
      kind: PodDisruptionBudget
      metadata: {name: web, namespace: default}
      spec:
        maxUnavailable: 0
        selector: {matchLabels: {app: web}}
      """
    When somebody deletes the NodeClaim
    Then all 4 pods of Deployment "web" are Running on another node within 4m
    And the instance is terminated within 1m
    And the node is gone within 2m

  @termination.order-of-steps @termination.volumes-awaited
  Scenario: A volume holds the instance until it is detached, unless its pod stays
    Given the manifest "web.yaml" is applied
    And all 4 pods of Deployment "web" are Running within 3m
    And the objects are applied
      """
      apiVersion: v1
      kind: PersistentVolumeClaim
      metadata: {name: kept, namespace: default}
      spec: {volumeName: kept, storageClassName: "", accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
      ---
      apiVersion: v1
      kind: PersistentVolume
      metadata: {name: kept}
      spec:
        capacity: {storage: 1Gi}
        accessModes: [ReadWriteOnce]
        claimRef: {namespace: default, name: kept}
        hostPath: {path: /kept}
      ---
      apiVersion: v1
      kind: Pod
      metadata: {name: stays, namespace: default}
      spec:
        tolerations: [{operator: Exists}]
        nodeSelector: {karpenter.sh/nodepool: default}
        containers: [{name: main, image: app, resources: {requests: {cpu: 10m}}}]
        volumes: [{name: data, persistentVolumeClaim: {claimName: kept}}]
      """
    And pod "stays" is Running within 1m
    And volume "kept" is attached to the node
    And volume "moves" is attached to the node
    When somebody deletes the NodeClaim
    Then all 4 pods of Deployment "web" are Running on another node within 5m
    And condition "VolumesDetached" of the NodeClaim is "Unknown" with reason "AwaitingVolumeDetachment" within 30s
    When 30s passes
    Then the instance is running
    When volume "moves" is detached from the node
    Then the instance is terminated within 1m
    And the node is gone within 2m
