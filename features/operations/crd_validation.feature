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

    Examples:
      | fault                       | path                             | value     | message                          |
      | a wait that is no duration  | spec.disruption.consolidateAfter | soon      | spec.disruption.consolidateAfter |
      | an expiry in days           | spec.template.spec.expireAfter   | 30d       | spec.template.spec.expireAfter   |
      | a field that does not exist | spec.limit                       | {cpu: 10} | unknown field                    |
      | a quantity that is none     | spec.limits.cpu                  | ten       | spec.limits.cpu                  |

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
