#!/usr/bin/env bash
# Looks whether a set-up by deploy/README.md can work, before anything is created: the tools, the variables of step 1, that
# versions are fixed and belong together, and that the credentials are those of the account. It names everything that is
# missing at once, and changes nothing.
#
#   deploy/preflight.sh [--without TOOL]… [--cluster]
#
#   --without eksctl     the cluster exists already
#   --cluster            look at stack and cluster too, before the chart is installed
#
# Exit codes: 0 all is there (there may be warnings), 1 something is missing or wrong, 2 wrong usage.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  echo "preflight: $1; usage: deploy/preflight.sh [--without aws|kubectl|eksctl|helm]… [--cluster]" >&2
  exit 2
}

without=" " cluster=false
while [[ $# -gt 0 ]]; do
  case $1 in
    --without)
      [[ ${2:-} =~ ^(aws|kubectl|eksctl|helm)$ ]] || usage "--without names one of the tools, not ${2:-nothing}"
      without+="$2 "
      shift 2 ;;
    --cluster)
      cluster=true
      shift ;;
    *) usage "there is no option $1" ;;
  esac
done

wrong=0
problem() { echo "missing  $1"; wrong=$((wrong + 1)); }
warning() { echo "warning  $1"; }
good() { echo "ok       $1"; }

# tool NAME WHAT_FOR WHERE
tool() {
  [[ $without != *" $1 "* ]] || return 0
  if command -v "$1" > /dev/null; then
    good "$1 is installed"
  else
    problem "$1, which $2: $3"
  fi
}

# variable NAME PATTERN WHAT_IS_RIGHT
variable() {
  local value=${!1:-}
  if [[ -z $value ]]; then
    problem "$1 is not set: it is $3"
  elif [[ ! $value =~ ^($2)$ ]]; then
    problem "$1 is \"$value\", but must be $3"
  else
    good "$1 is $value"
  fi
}

# field FILE KEY: the value of a key at the beginning of a line.
field() {
  sed -n "s/^$2: *\"\{0,1\}\([^\" ]*\)\"\{0,1\} *\$/\1/p" "$1" | head -n 1
}

tool aws "makes roles, queue and tags" "https://docs.aws.amazon.com/cli/latest/userguide/getting-started-install.html"
tool kubectl "talks to the cluster" "https://kubernetes.io/docs/tasks/tools/"
tool eksctl "makes the cluster" "https://eksctl.io/installation/, or --without eksctl where the cluster exists"
tool helm "installs the chart" "https://helm.sh/docs/intro/install/"

# The role KarpenterControllerRole-NAME may have 64 characters.
variable CLUSTER_NAME '[A-Za-z0-9][A-Za-z0-9_-]{0,39}' \
  "the name of the EKS cluster: a letter or digit, then letters, digits, - and _, 40 characters at most"
variable AWS_REGION '[a-z]{2,3}(-[a-z]+)+-[0-9]+' "the region of the cluster, such as us-west-2"
variable AWS_ACCOUNT_ID '[0-9]{12}' "the account's number, 12 digits"
variable KUBERNETES_VERSION '1\.[0-9]+' "the cluster's Kubernetes version, such as 1.36"
variable KARPENTER_NAMESPACE '[a-z0-9]([a-z0-9-]*[a-z0-9])?' "the namespace of the controller, kube-system by default"
variable CONTROLLER_VERSION '[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?' \
  "the version to install, such as 0.1.0; a fixed one, since a newer one may come with other CRDs"
variable AMI_ALIAS '(al2|al2023)@(latest|v[0-9]+)' \
  "the image of the nodes, such as al2023@v20251217; step 1 finds the current one"
if [[ ${AMI_ALIAS:-} == *@latest ]]; then
  warning "AMI_ALIAS is $AMI_ALIAS, which is not fixed: nodes change their image on the day AWS publishes one"
fi

# The chart, its CRDs and the image are made from one checkout and belong together.
for file in deploy/*/Chart.yaml; do
  [[ -r $file ]] || continue
  chart=${file%/Chart.yaml} version=$(field "$file" appVersion)
  if [[ -n ${CONTROLLER_VERSION:-} && $version != "$CONTROLLER_VERSION" ]]; then
    problem "$chart is of version $version and CONTROLLER_VERSION is $CONTROLLER_VERSION: check out the tag of that version"
  else
    good "$chart is of version $version"
  fi
done

if [[ $without != *" aws "* && -n ${AWS_ACCOUNT_ID:-} ]] && command -v aws > /dev/null; then
  if ! account=$(aws sts get-caller-identity --query Account --output text 2>&1); then
    problem "credentials: aws sts get-caller-identity says: $(tr '\n' ' ' <<< "$account")"
  elif [[ $account != "$AWS_ACCOUNT_ID" ]]; then
    problem "the credentials are those of account $account, and AWS_ACCOUNT_ID is $AWS_ACCOUNT_ID"
  else
    good "the credentials are those of account $account"
  fi
fi

# discovered WHAT DESCRIBE QUERY: whether something in the account carries the discovery tag.
discovered() {
  local found
  if ! found=$(aws ec2 "$2" --filters "Name=tag:karpenter.sh/discovery,Values=$CLUSTER_NAME" --query "$3" --output text 2>&1); then
    problem "$1: aws ec2 $2 says: $(tr '\n' ' ' <<< "$found")"
  elif [[ -z $found || $found == None ]]; then
    problem "$1 with the tag karpenter.sh/discovery=$CLUSTER_NAME, without which nothing is launched"
  else
    good "$(wc -w <<< "$found" | tr -d ' ') $1 with the discovery tag"
  fi
}

# Whether the nodes' role is let in, by an access entry or by aws-auth.
admitted() {
  local role="arn:aws[a-z-]*:iam::$AWS_ACCOUNT_ID:role/KarpenterNodeRole-$CLUSTER_NAME"
  aws eks list-access-entries --cluster-name "$CLUSTER_NAME" --query accessEntries --output text 2> /dev/null |
    tr '\t' '\n' | grep -q "^$role\$" ||
    kubectl --namespace kube-system get configmap aws-auth --output yaml 2> /dev/null | grep -q "$role\( \|\$\)"
}

look_at_the_cluster() {
  local homes
  discovered "subnets" describe-subnets 'Subnets[].SubnetId'
  discovered "security groups" describe-security-groups 'SecurityGroups[].GroupId'
  if admitted; then
    good "KarpenterNodeRole-$CLUSTER_NAME is admitted to the cluster"
  else
    problem "an access entry or aws-auth for KarpenterNodeRole-$CLUSTER_NAME, without which machines start and never join"
  fi
  if ! aws iam get-role --role-name AWSServiceRoleForEC2Spot > /dev/null 2>&1; then
    warning "the account has no service-linked role for spot, without which there are no spot machines"
  fi
  # The two replicas share no node, and none that the controller manages.
  if ! homes=$(kubectl get nodes --selector '!karpenter.sh/nodepool' --field-selector spec.unschedulable=false --output name 2>&1); then
    problem "the cluster: kubectl get nodes says: $(tr '\n' ' ' <<< "$homes")"
  elif [[ $(grep -c . <<< "$homes") -lt 2 ]]; then
    warning "$(grep -c . <<< "$homes") schedulable nodes that the controller does not manage, and its two replicas need two"
  else
    good "$(grep -c . <<< "$homes") nodes that the controller does not manage"
  fi
}

if [[ $cluster == true ]]; then
  if [[ $wrong -gt 0 ]]; then
    echo "skipped  the cluster, until the above is put right"
  else
    look_at_the_cluster
  fi
fi

if [[ $wrong -gt 0 ]]; then
  echo "preflight: $wrong to be put right; nothing was created" >&2
  exit 1
fi
echo "preflight: all is there"
