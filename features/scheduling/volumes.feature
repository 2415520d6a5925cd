Feature: Pods go where their volumes are
  A volume that only one zone reaches decides where its pod runs, from the first day on and after every pause.

  Background:
    Given a cluster set up as the guides describe
    And the manifest "ec2-node-class.yaml" is applied
    And the manifest "node-pool.yaml" is applied
    # A volume in each zone, made by hand: nobody provisions volumes here. Claims wait for their pods.
    And the objects are applied
      """
      apiVersion: storage.k8s.io/v1
      kind: StorageClass
      metadata: {name: zonal}
      provisioner: kubernetes.io/no-provisioner
      volumeBindingMode: WaitForFirstConsumer
      ---
      apiVersion: v1
      kind: PersistentVolume
      metadata: {name: volume-a}
      spec:
        capacity: {storage: 10Gi}
        accessModes: [ReadWriteOnce]
        storageClassName: zonal
        csi: {driver: ebs.csi.aws.com, volumeHandle: vol-0a}
        nodeAffinity:
          required:
            nodeSelectorTerms:
              - matchExpressions:
                  - {key: topology.kubernetes.io/zone, operator: In, values: [us-west-2a]}
      ---
      apiVersion: v1
      kind: PersistentVolume
      metadata: {name: volume-b}
      spec:
        capacity: {storage: 10Gi}
        accessModes: [ReadWriteOnce]
        storageClassName: zonal
        csi: {driver: ebs.csi.aws.com, volumeHandle: vol-0b}
        nodeAffinity:
          required:
            nodeSelectorTerms:
              - matchExpressions:
                  - {key: topology.kubernetes.io/zone, operator: In, values: [us-west-2b]}
      ---
      apiVersion: v1
      kind: PersistentVolume
      metadata: {name: volume-c}
      spec:
        capacity: {storage: 10Gi}
        accessModes: [ReadWriteOnce]
        storageClassName: zonal
        csi: {driver: ebs.csi.aws.com, volumeHandle: vol-0c}
        nodeAffinity:
          required:
            nodeSelectorTerms:
              - matchExpressions:
                  - {key: topology.kubernetes.io/zone, operator: In, values: [us-west-2c]}
      """

  @field-report-17
  Scenario: A StatefulSet that was scaled to nothing and back runs in the zones of the first time
    When the objects are applied
      """
      apiVersion: apps/v1
      kind: StatefulSet
      metadata: {name: db, namespace: default}
      spec:
        replicas: 3
        serviceName: db
        podManagementPolicy: Parallel
        selector: {matchLabels: {app: db}}
        template:
          metadata: {labels: {app: db}}
          spec:
            topologySpreadConstraints:
              - maxSkew: 1
                topologyKey: topology.kubernetes.io/zone
                whenUnsatisfiable: DoNotSchedule
                labelSelector: {matchLabels: {app: db}}
            containers:
              - name: main
                image: db
                resources: {requests: {cpu: 500m}}
                volumeMounts: [{name: data, mountPath: /data}]
        volumeClaimTemplates:
          - metadata: {name: data}
            spec:
              accessModes: [ReadWriteOnce]
              storageClassName: zonal
              resources: {requests: {storage: 10Gi}}
      """
    Then 3 NodeClaims are launched in 3 different zones within 10s
    And all 3 pods of StatefulSet "db" are Running within 2m, each in the zone of its volume
    When StatefulSet "db" is scaled to 0
    Then no NodeClaim exists within 4m
    # The claims keep the volumes that they were given; each pod has to return to its own.
    When StatefulSet "db" is scaled to 3
    Then 3 NodeClaims are launched in 3 different zones within 10s
    And all 3 pods of StatefulSet "db" are Running within 2m, each in the zone of its volume
    And exactly 3 NodeClaims exists within 1s

  @scheduling.volume-zone-from-pv
  Scenario: A pod whose volume is in one zone gets its node there
    When the objects are applied
      """
      apiVersion: v1
      kind: PersistentVolumeClaim
      metadata: {name: data, namespace: default}
      spec:
        accessModes: [ReadWriteOnce]
        storageClassName: zonal
        resources: {requests: {storage: 10Gi}}
        volumeName: volume-b
      ---
      apiVersion: v1
      kind: Pod
      metadata: {name: db, namespace: default}
      spec:
        containers:
          - name: main
            image: db
            resources: {requests: {cpu: 500m}}
            volumeMounts: [{name: data, mountPath: /data}]
        volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
      """
    Then pod "db" is Running on a node with "topology.kubernetes.io/zone: us-west-2b" within 2m
    And exactly 1 NodeClaim exists within 1s

  @scheduling.volume-zone-from-pv
  Scenario: A pod whose volume is in a zone without subnet waits and is told why
    When the objects are applied
      """
      apiVersion: v1
      kind: PersistentVolume
      metadata: {name: volume-d}
      spec:
        capacity: {storage: 10Gi}
        accessModes: [ReadWriteOnce]
        storageClassName: zonal
        csi: {driver: ebs.csi.aws.com, volumeHandle: vol-0d}
        claimRef: {namespace: default, name: data}
        nodeAffinity:
          required:
            nodeSelectorTerms:
              - matchExpressions:
                  - {key: topology.kubernetes.io/zone, operator: In, values: [us-west-2d]}
      ---
      apiVersion: v1
      kind: PersistentVolumeClaim
      metadata: {name: data, namespace: default}
      spec:
        accessModes: [ReadWriteOnce]
        storageClassName: zonal
        resources: {requests: {storage: 10Gi}}
      ---
      apiVersion: v1
      kind: Pod
      metadata: {name: db, namespace: default}
      spec:
        containers:
          - name: main
            image: db
            resources: {requests: {cpu: 500m}}
            volumeMounts: [{name: data, mountPath: /data}]
        volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
      """
    Then within 1m event "FailedScheduling" on Pod "db" contains "topology.kubernetes.io/zone In [us-west-2d]"
    And pod "db" is Pending
    And no NodeClaim exists
