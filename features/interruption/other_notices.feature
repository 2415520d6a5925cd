Feature: Other notices about instances
  Stopping, termination, scheduled maintenance and failed status checks are acted upon as spot notices are; what says
  nothing new, or is about instances that are not ours, is deleted and forgotten.

  Background:
    Given a cluster set up as the guides describe
    And the manifest "ec2-node-class.yaml" is applied
    And the manifest "node-pool.yaml" is applied
    And a pod "single" that asks for 1 CPU is created
    And pod "single" is Running within 3m

  @interruption.state-change-drains
  Scenario Outline: An instance that is <state> is drained
    When a state-change message "<state>" arrives for the instance
    Then the NodeClaim is deleted within 10s
    And event "<event>" is published on the node
    And the node has the taint "karpenter.sh/disrupted:NoSchedule" within 10s
    And metric "karpenter_nodeclaims_disrupted_total" with reason "<reason>" is 1

    Examples:
      | state         | event               | reason              |
      | stopping      | InstanceStopping    | instance_stopped    |
      | stopped       | InstanceStopping    | instance_stopped    |
      | shutting-down | InstanceTerminating | instance_terminated |
      | terminated    | InstanceTerminating | instance_terminated |

  @interruption.harmless-states-ignored
  Scenario Outline: An instance that is <state> is left alone
    When a state-change message "<state>" arrives for the instance
    Then the interruption queue is empty within 30s
    When 1m passes
    Then the NodeClaim still exists
    # Its launch has sent one of each state before.
    And metric "karpenter_interruption_received_messages_total" with message_type "no_op" is 3

    Examples:
      | state   |
      | pending |
      | running |

  @interruption.scheduled-change-drains
  Scenario: A scheduled change of the instance drains it
    When a health message of category "scheduledChange" and service "EC2" arrives for the instance
    Then the NodeClaim is deleted within 10s
    And event "InstanceUnhealthy" is published on the node

  @interruption.scheduled-change-drains
  Scenario Outline: A health message of category <category> and service <service> is deleted and forgotten
    When a health message of category "<category>" and service "<service>" arrives for the instance
    Then the interruption queue is empty within 30s
    When 1m passes
    Then the NodeClaim still exists

    Examples:
      | category            | service |
      | issue               | EC2     |
      | accountNotification | EC2     |
      | scheduledChange     | RDS     |

  @interruption.foreign-instances-ignored
  Scenario: A spot notice about an instance that nobody knows is deleted and forgotten
    When a spot interruption message arrives for an instance that nobody knows
    Then the interruption queue is empty within 30s
    When 1m passes
    Then the NodeClaim still exists
    And the node is not tainted "karpenter.sh/disrupted:NoSchedule"

  @interruption.status-checks-polled
  Scenario: An instance whose system status check fails is replaced without patience
    Given the objects are applied
      """
      apiVersion: v1
      kind: Pod
      metadata: {name: guarded, namespace: default, labels: {app: guarded}}
      spec:
        containers:
          - {name: main, image: nginx, resources: {requests: {cpu: 100m}}}
      ---
      apiVersion: policy/v1
      kind: PodDisruptionBudget
      metadata: {name: guarded, namespace: default}
      spec:
        maxUnavailable: 0
        selector: {matchLabels: {app: guarded}}
      """
    And pod "guarded" is Running within 30s
    When a status check of the instance fails
    Then the NodeClaim is deleted within 5m
    And event "InstanceUnhealthy" is published on the node
    And metric "karpenter_interruption_instance_status_unhealthy_total" is 1
    And pod "guarded" is gone within 1m
    And the instance is terminated within 1m

  @interruption.scheduled-maintenance-polled
  Scenario: An instance that is to be retired is drained in good time
    When maintenance "instance-retirement" is scheduled for the instance
    Then the NodeClaim is deleted within 70s
    And event "InstanceUnhealthy" is published on the node
    And the pods left the node by eviction
