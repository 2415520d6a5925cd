Feature: Wrong manifests are refused
  What the API server refuses never reaches the controller; its message names the field, the value and what would be right.

  Background:
    Given a cluster set up as the guides describe, its controller not yet started
    And the manifest "ec2-node-class.yaml" is applied
    And the manifest "node-pool.yaml" is applied

  Scenario Outline: A NodePool with <fault> is refused
    Then changing "<path>" of the manifest "node-pool.yaml" to "<value>" is refused with "<message>"

    @provisioning.validate-operators
    Examples:
      | fault                   | path                            | value                                                                      | message                                                   |
      | an unknown operator     | spec.template.spec.requirements | [{key: kubernetes.io/arch, operator: Foo, values: [amd64]}]                | supported values:                                         |
      | In without values       | spec.template.spec.requirements | [{key: kubernetes.io/arch, operator: In, values: []}]                      | requirements with operator 'In' must have a value defined |
      | Gt of a word            | spec.template.spec.requirements | [{key: karpenter.k8s.aws/instance-cpu, operator: Gt, values: [a]}]         | must have a single positive integer value                 |
      | Gte of two values       | spec.template.spec.requirements | [{key: karpenter.k8s.aws/instance-cpu, operator: Gte, values: ['2', '4']}] | must have a single positive integer value                 |
      | Lt of a negative number | spec.template.spec.requirements | [{key: karpenter.k8s.aws/instance-cpu, operator: Lt, values: ['-1']}]      | must have a single positive integer value                 |

    @provisioning.validate-min-values
    Examples:
      | fault                       | path                            | value                                                                           | message                                                           |
      | minValues 0                 | spec.template.spec.requirements | [{key: kubernetes.io/arch, operator: Exists, minValues: 0}]                     | minValues                                                         |
      | minValues 51                | spec.template.spec.requirements | [{key: kubernetes.io/arch, operator: Exists, minValues: 51}]                    | minValues                                                         |
      | fewer values than minValues | spec.template.spec.requirements | [{key: kubernetes.io/arch, operator: In, values: [amd64, arm64], minValues: 3}] | requirements with 'minValues' must have at least that many values |

    @provisioning.validate-weight
    Examples:
      | fault      | path        | value | message     |
      | weight 0   | spec.weight | 0     | spec.weight |
      | weight 101 | spec.weight | 101   | spec.weight |

    @provisioning.validate-label-domains
    Examples:
      | fault                            | path                            | value                                                         | message       |
      | a label of a reserved domain     | spec.template.metadata          | {labels: {karpenter.sh/foo: x}}                               | is restricted |
      | the label of the pool            | spec.template.metadata          | {labels: {karpenter.sh/nodepool: x}}                          | is restricted |
      | a requirement on the host name   | spec.template.spec.requirements | [{key: kubernetes.io/hostname, operator: In, values: [x]}]    | is restricted |
      | an unknown label of the provider | spec.template.spec.requirements | [{key: karpenter.k8s.aws/unknown, operator: In, values: [x]}] | is restricted |

    @provisioning.validate-durations
    Examples:
      | fault                      | path                                      | value | message                                   |
      | a wait in broken hours     | spec.disruption.consolidateAfter          | 1.5h  | spec.disruption.consolidateAfter          |
      | a negative wait            | spec.disruption.consolidateAfter          | -1h   | spec.disruption.consolidateAfter          |
      | an expiry without a unit   | spec.template.spec.expireAfter            | '30'  | spec.template.spec.expireAfter            |
      | a negative expiry          | spec.template.spec.expireAfter            | -1h   | spec.template.spec.expireAfter            |
      | a grace period of Never    | spec.template.spec.terminationGracePeriod | Never | spec.template.spec.terminationGracePeriod |

    @provisioning.validate-nodeclass-ref
    Examples:
      | fault                    | path                                | value | message       |
      | a class without a group  | spec.template.spec.nodeClassRef.group | ''    | nodeClassRef.group |
      | a class without a kind   | spec.template.spec.nodeClassRef.kind  | ''    | nodeClassRef.kind  |
      | a class without a name   | spec.template.spec.nodeClassRef.name  | ''    | nodeClassRef.name  |
      | another kind of class    | spec.template.spec.nodeClassRef.kind  | Other | immutable          |

    @disruption.budget-validation
    Examples:
      | fault                            | path                    | value                                                  | message                 |
      | a budget of 101 per cent         | spec.disruption.budgets | [{nodes: 101%}]                                        | spec.disruption.budgets |
      | a budget of fewer than none      | spec.disruption.budgets | [{nodes: '-1'}]                                        | spec.disruption.budgets |
      | a budget for expiry              | spec.disruption.budgets | [{nodes: '1', reasons: [Expired]}]                     | spec.disruption.budgets |
      | a schedule without a duration    | spec.disruption.budgets | [{nodes: '1', schedule: '@daily'}]                     | must be set with        |
      | a window shorter than a minute   | spec.disruption.budgets | [{nodes: '1', schedule: '@daily', duration: 30s}]      | spec.disruption.budgets |
      | a schedule that is none          | spec.disruption.budgets | [{nodes: '1', schedule: foo, duration: 10m}]           | spec.disruption.budgets |

    @provisioning.validate-taints
    Examples:
      | fault                       | path                      | value                               | message                   |
      | a taint without a key       | spec.template.spec.taints | [{effect: NoSchedule}]              | spec.template.spec.taints |
      | a taint of an unknown effect | spec.template.spec.taints | [{key: example.com/a, effect: Foo}] | spec.template.spec.taints |

    @provisioning.validate-no-template-resources
    Examples:
      | fault                     | path                         | value                  | message       |
      | resources of its template | spec.template.spec.resources | {requests: {cpu: '1'}} | field not declared in schema |

    Examples:
      | fault                       | path                             | value     | message                          |
      | a wait that is no duration  | spec.disruption.consolidateAfter | soon      | spec.disruption.consolidateAfter |
      | an expiry in days           | spec.template.spec.expireAfter   | 30d       | spec.template.spec.expireAfter   |
      | a field that does not exist | spec.limit                       | {cpu: 10} | field not declared in schema                    |
      | a quantity that is none     | spec.limits.cpu                  | ten       | spec.limits.cpu                  |

  Scenario Outline: A NodePool with <what> is accepted
    Then changing "<path>" of the manifest "node-pool.yaml" to "<value>" is accepted

    @provisioning.validate-durations
    Examples:
      | what                       | path                                      | value |
      | a grace period of 720h     | spec.template.spec.terminationGracePeriod | 720h  |
      | a wait of 720h             | spec.disruption.consolidateAfter          | 720h  |
      | a wait of Never            | spec.disruption.consolidateAfter          | Never |
      | an expiry of Never         | spec.template.spec.expireAfter            | Never |

    @disruption.budget-validation
    Examples:
      | what                       | path                    | value                                               |
      | a budget in per cent       | spec.disruption.budgets | [{nodes: 10%}]                                      |
      | a budget in nodes          | spec.disruption.budgets | [{nodes: '5'}]                                      |
      | a budget for ten minutes   | spec.disruption.budgets | [{nodes: '0', schedule: '@daily', duration: 10m}]   |
      | a budget for hours         | spec.disruption.budgets | [{nodes: '0', schedule: '@daily', duration: 10h5m}] |

    @provisioning.validate-nodeclass-ref
    Examples:
      | what               | path                                 | value |
      | another class name | spec.template.spec.nodeClassRef.name | other |

  @disruption.defaults
  Scenario: What a NodePool does not say about disruption has defaults
    Given the manifest "node-pool.yaml" is applied with
      | metadata.name   | plain |
      | spec.disruption | null  |
    Then field "spec.disruption.consolidationPolicy" of NodePool "plain" is "WhenEmptyOrUnderutilized" within 1s
    And field "spec.disruption.consolidateAfter" of NodePool "plain" is "0s" within 1s
    And field "spec.disruption.budgets" of NodePool "plain" is "[{nodes: 10%}]" within 1s

  @provisioning.validate-operators
  Scenario Outline: A NodePool with operator <operator> is accepted
    Then changing "spec.template.spec.requirements" of the manifest "node-pool.yaml" to "<value>" is accepted

    Examples:
      | operator     | value                                                                  |
      | In           | [{key: kubernetes.io/arch, operator: In, values: [amd64]}]             |
      | NotIn        | [{key: kubernetes.io/arch, operator: NotIn, values: [arm64]}]          |
      | Exists       | [{key: kubernetes.io/arch, operator: Exists}]                          |
      | DoesNotExist | [{key: example.com/gone, operator: DoesNotExist}]                      |
      | Gt           | [{key: karpenter.k8s.aws/instance-cpu, operator: Gt, values: ['2']}]   |
      | Lt           | [{key: karpenter.k8s.aws/instance-cpu, operator: Lt, values: ['64']}]  |
      | Gte          | [{key: karpenter.k8s.aws/instance-cpu, operator: Gte, values: ['4']}]  |
      | Lte          | [{key: karpenter.k8s.aws/instance-cpu, operator: Lte, values: ['32']}] |

  @provisioning.validate-weight
  Scenario Outline: A NodePool with weight <weight> is accepted
    Then changing "spec.weight" of the manifest "node-pool.yaml" to "<weight>" is accepted

    Examples:
      | weight |
      | 1      |
      | 100    |

  Scenario Outline: An EC2NodeClass with <fault> is refused
    Then changing "<path>" of the manifest "ec2-node-class.yaml" to "<value>" is refused with "<message>"

    @node_classes.role-or-instance-profile
    Examples:
      | fault                    | path                 | value | message                                                 |
      | both role and profile    | spec.instanceProfile | mine  | must specify exactly one of ['role', 'instanceProfile'] |
      | neither role nor profile | spec.role            | null  | must specify exactly one of ['role', 'instanceProfile'] |
      | an empty role            | spec.role            | ''    | role cannot be empty                                    |

    @node_classes.ami-alias-validation
    Examples:
      | fault                          | path                  | value                                            | message                    |
      | an alias beside an id          | spec.amiSelectorTerms | [{alias: al2023@latest, id: ami-123}]            | 'alias' is mutually exclusive |
      | two aliases                    | spec.amiSelectorTerms | [{alias: al2023@latest}, {alias: al2@latest}]    | 'alias' is mutually exclusive |
      | an alias of an unknown family  | spec.amiSelectorTerms | [{alias: foo@latest}]                            | family is not supported    |
      | a pinned Windows alias         | spec.amiSelectorTerms | [{alias: windows2022@v1}]                        | windows                    |
      | another family than its alias  | spec.amiFamily        | Bottlerocket                                     | amiFamily                  |

    @node_classes.ami-family-required-without-alias
    Examples:
      | fault                   | path                  | value           | message   |
      | an image without family | spec.amiSelectorTerms | [{id: ami-123}] | amiFamily |

    @node_classes.tags-applied-and-restricted
    Examples:
      | fault                    | path      | value                              | message   |
      | a tag of Karpenter's own | spec.tags | {karpenter.sh/nodepool: x}         | spec.tags |
      | a tag of a cluster       | spec.tags | {kubernetes.io/cluster/x: owned}   | spec.tags |
      | EKS's tag                | spec.tags | {'eks:eks-cluster-name': x}        | spec.tags |

    @node_classes.selector-validation
    Examples:
      | fault                     | path                            | value                          | message                      |
      | an empty term             | spec.subnetSelectorTerms        | [{}]                           | expected at least one        |
      | a tag with an empty key   | spec.subnetSelectorTerms        | [{tags: {'': x}}]              | empty tag keys or values     |
      | a tag with an empty value | spec.subnetSelectorTerms        | [{tags: {x: ''}}]              | empty tag keys or values     |
      | id and tags in one term   | spec.subnetSelectorTerms        | [{id: subnet-1, tags: {x: y}}] | 'id' is mutually exclusive   |
      | name and tags in one term | spec.securityGroupSelectorTerms | [{name: x, tags: {x: y}}]      | 'name' is mutually exclusive |

    Examples:
      | fault                     | path                     | value | message                  |
      | no subnet selector at all | spec.subnetSelectorTerms | []    | spec.subnetSelectorTerms |
