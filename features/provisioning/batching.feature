Feature: Pods that come together are served together
  Pods are collected until no new one has come for a second, ten seconds at most, so that they share nodes. What is on its
  way already is counted as room.

  Background:
    Given a cluster set up as the guides describe
    And the manifest "ec2-node-class.yaml" is applied
    And the manifest "node-pool.yaml" is applied

  @provisioning.batch-idle-window
  Scenario: Pods that come one after the other in quick succession share one node
    When 20 pods that ask for 100m CPU are created, one every 200ms
    Then exactly 1 NodeClaim is launched within 5s
    And the NodeClaim requests at least 2 CPU

  @provisioning.batch-max-window
  Scenario: A stream of pods is not waited for longer than ten seconds
    When 60 pods that ask for 100m CPU are created, one every 500ms
    Then the first NodeClaim was created between 10s and 12s after the first pod

  @provisioning.in-flight-capacity-reused
  Scenario: A node on its way has room for another pod
    When the manifest "nginx.yaml" is applied
    Then exactly 1 NodeClaim is launched within 1m
    When a pod "latecomer" that asks for 500m CPU is created
    Then within 5s event "Nominated" on Pod "latecomer" contains "Pod should schedule on: nodeclaim/default-"
    And pod "latecomer" is Running within 60s of the launch
    And exactly 1 NodeClaim exists within 1s

  @whole-catalogue
  Scenario: Five thousand pods at once all run
    Given the manifest "node-pool.yaml" is applied with
      | spec.limits.cpu | 4000 |
    When the objects are applied
      """
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: burst, namespace: default}
      spec:
        replicas: 5000
        selector: {matchLabels: {app: burst}}
        template:
          metadata: {labels: {app: burst}}
          spec:
            containers:
              - {name: main, image: web, resources: {requests: {cpu: 250m, memory: 256Mi}}}
      """
    Then all 5000 pods of Deployment "burst" are Running within 5m
