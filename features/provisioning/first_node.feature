Feature: The first node
  Pods that fit nowhere get a node: one that holds them all, of a size and price that suits them, and quickly.

  Background:
    Given a cluster set up as the guides describe
    And the manifest "ec2-node-class.yaml" is applied
    And the manifest "node-pool.yaml" is applied

  @essential @whole-catalogue @deployment.seed-pool-and-class-accepted @provisioning.ten-500m-pods-one-node @provisioning.fleet-called-directly @provisioning.spot-price-capacity-optimized
  Scenario: Ten nginx pods of 500m share one spot node of about eight vCPUs
    When the manifest "nginx.yaml" is applied
    Then exactly 1 NodeClaim is launched within 1m
    And the NodeClaim requests at least 5 CPU
    And the instance is a spot instance of category "c", "m" or "r" and a generation above 2
    And the instance has between 6 and 16 vCPUs
    And the instance is the one that the catalogue's prices give for the request
    And all 10 pods of Deployment "nginx" run on that node within 60s of the launch
    And exactly 1 CreateFleet call of type "instant" asked for 1 spot instance with strategy "price-capacity-optimized"
    And exactly 1 NodeClaim exists within 1s
    And condition "Ready" of EC2NodeClass "default" is "True"
    And condition "Ready" of NodePool "default" is "True"

  @essential @provisioning.launched-log-line @operations.provisioning-log-trail
  Scenario: The way of a node is told in the log, its launch with type and zone
    When the manifest "nginx.yaml" is applied
    Then all 10 pods of Deployment "nginx" are Running within 3m
    And the controller logs "launched nodeclaim" with the provider-id, instance-type, zone, capacity-type and allocatable of the instance
    And the controller logs in this order
      | found provisionable pod(s)                |
      | computed new nodeclaim(s) to fit pod(s)   |
      | created nodeclaim                         |
      | launched nodeclaim                        |
      | registered nodeclaim                      |
      | initialized nodeclaim                     |

  @essential @provisioning.pending-pod-creates-node
  Scenario: One pod that fits nowhere gets a node of its pool
    When a pod "single" that asks for 1 CPU is created
    Then exactly 1 NodeClaim is launched within 1m
    And pod "single" is Running within 60s of the launch
    And the node carries the label "karpenter.sh/nodepool" with value "default"
    And exactly 1 CreateFleet call of type "instant" asked for 1 spot instance with strategy "price-capacity-optimized"

  @provisioning.daemonset-overhead-counted
  Scenario: What DaemonSets will ask of a new node is counted when it is sized
    Given a DaemonSet "agent" whose pods ask for 1 CPU
    When a pod "single" that asks for 3500m CPU is created
    Then exactly 1 NodeClaim is launched within 1m
    And the NodeClaim requests at least 4500m CPU
    And pod "single" is Running within 60s of the launch
    And a pod of DaemonSet "agent" runs on the node within 60s
