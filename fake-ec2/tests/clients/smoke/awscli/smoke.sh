#!/usr/bin/env bash
# fake-ec2 as version 1 of the AWS command line sees it. The steps are those of ../README.md; `--queues-only` leaves the instances
# out, for a version that still speaks SQS's query protocol.
set -euo pipefail

# No retries: a step is to see the first answer.
export AWS_MAX_ATTEMPTS=1 AWS_PAGER="" AWS_DEFAULT_OUTPUT=text

expect() { # WHAT GOT WANTED
  [ "$2" == "$3" ] || { printf '%s: expected %q, and got %q\n' "$1" "$3" "$2" >&2; exit 1; }
}

done_with() { echo "ok  $1"; }

# refused WHAT CODE COMMAND…; version 1 of the command line tells no status, and ends with 255 whatever went wrong.
refused() {
  local what=$1 code=$2 said status=0
  shift 2
  said=$("$@" 2>&1) || status=$?
  expect "$what: how it ended" "$status" 255
  [[ $said == *"An error occurred ($code) when calling"* ]] ||
    { printf '%s: expected %s, and got %s\n' "$what" "$code" "$said" >&2; exit 1; }
}

lines() { tr '\t' '\n' | sort | paste -sd' '; }

discovery=Name=tag:karpenter.sh/discovery,Values=demo

stage() {
  local name=/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/standard/recommended/image_id image group
  image=$(aws ssm get-parameter --name $name --query Parameter.Value)
  read -r -a subnets <<< "$(aws ec2 describe-subnets --filters $discovery --query 'Subnets[].SubnetId')"
  expect subnets ${#subnets[@]} 3
  group=$(aws ec2 describe-security-groups --filters $discovery --query 'SecurityGroups[].GroupId')
  expect "security groups" "$(wc -w <<< "$group")" 1
  read -r template version <<< "$(aws ec2 create-launch-template --launch-template-name smoke \
    --query 'LaunchTemplate.[LaunchTemplateId, LatestVersionNumber]' --launch-template-data "{
      \"ImageId\": \"$image\", \"InstanceType\": \"m5.large\", \"SecurityGroupIds\": [\"$group\"],
      \"TagSpecifications\": [{\"ResourceType\": \"instance\", \"Tags\": [{\"Key\": \"smoke\", \"Value\": \"template\"}]}]}")"
  expect "version of the template" "$version" 1
  done_with "a stage: image, subnets, security group, launch template"
}

fleet() {
  local answer
  answer=$(aws ec2 create-fleet --type instant \
    --target-capacity-specification TotalTargetCapacity=2,DefaultTargetCapacityType=on-demand \
    --query '[length(Errors), Instances[].InstanceIds[]]' --output json --launch-template-configs "[{
      \"LaunchTemplateSpecification\": {\"LaunchTemplateId\": \"$template\", \"Version\": \"\$Latest\"},
      \"Overrides\": [{\"InstanceType\": \"m5.large\", \"SubnetId\": \"${subnets[0]}\"},
                      {\"InstanceType\": \"c5.large\", \"SubnetId\": \"${subnets[0]}\"}]}]")
  read -r errors all <<< "$(tr -d '[]," \n' <<< "$answer" | sed 's/i-/ i-/g')"
  expect "errors of the fleet" "$errors" 0
  expect "instances of the fleet" "$(wc -w <<< "$all")" 2
  done_with "a fleet launches 2 instances"
}

run() {
  local states
  states=$(aws ec2 run-instances --launch-template LaunchTemplateId="$template" --subnet-id "${subnets[1]}" --count 4 \
    --tag-specifications 'ResourceType=instance,Tags=[{Key=smoke,Value=run}]' --query 'Instances[].[InstanceId, State.Name]')
  ran=$(cut -f1 <<< "$states" | lines)
  expect "states of what was run" "$(cut -f2 <<< "$states" | lines)" "pending pending pending pending"
  all=$(lines <<< "${all// /$'\n'}"$'\n'"${ran// /$'\n'}")
  done_with "RunInstances launches 4 instances"
}

filter() {
  filtered() { aws ec2 describe-instances --filters "$@" --query 'Reservations[].Instances[].InstanceId' | lines; }
  expect "by tag" "$(filtered Name=tag:smoke,Values=run)" "$ran"
  expect "by tag and type" "$(filtered Name=tag:smoke,Values=run 'Name=instance-type,Values=m5.*,m6?.large')" "$ran"
  expect "by another type" "$(filtered Name=tag:smoke,Values=run 'Name=instance-type,Values=c5.*')" ""
  done_with "filters: joined by and, their values by or, with wildcards"
}

pages() {
  # With --max-results the command line asks for one page; without, for all.
  local page=(aws ec2 describe-instances --max-results 5 --query '[NextToken, Reservations[].Instances[].InstanceId][]') first
  first=$("${page[@]}")
  expect "ids of the first page" "$(tr '\t' '\n' <<< "$first" | grep -c '^i-')" 5
  expect "ids of the second page" "$("${page[@]}" --next-token "${first%%$'\t'*}" | tr '\t' '\n' | grep -c '^i-')" 1
  expect "all pages" "$(aws ec2 describe-instances --page-size 5 --query 'Reservations[].Instances[].InstanceId' | lines)" "$all"
  done_with "pages: each instance once"
}

tags() {
  local id=${ran%% *}
  described() {
    aws ec2 describe-tags --filters Name=resource-id,Values="$id" Name=key,Values=step,owner --query 'Tags[].[Key, Value]' |
      tr '\t' '=' | sort | paste -sd';'
  }
  aws ec2 create-tags --resources "$id" --tags 'Key=step,Value=a <b> & c' Key=owner,Value=Zoë
  expect tags "$(described)" "owner=Zoë;step=a <b> & c"
  aws ec2 delete-tags --resources "$id" --tags Key=step
  expect "tags after one is deleted" "$(described)" "owner=Zoë"
  done_with "tags: created, described, deleted"
}

errors() {
  refused "an unknown id" InvalidInstanceID.NotFound aws ec2 describe-instances --instance-ids i-0123456789abcdef0
  refused "no id" InvalidInstanceID.Malformed aws ec2 describe-instances --instance-ids instance
  refused "a dry run" DryRunOperation aws ec2 run-instances --dry-run --launch-template LaunchTemplateId="$template" \
    --subnet-id "${subnets[0]}"
  done_with "errors: code of three"
}

terminate() {
  local states
  # shellcheck disable=SC2086
  states=$(aws ec2 terminate-instances --instance-ids $all --query 'TerminatingInstances[].CurrentState.Name' | lines)
  expect states "$states" "$(printf 'shutting-down %.0s' {1..6} | sed 's/ $//')"
  # shellcheck disable=SC2086
  aws ec2 wait instance-terminated --instance-ids $all
  done_with "all 6 instances are terminated"
}

queue() { # NAME
  # Version 1 takes no notice of AWS_ENDPOINT_URL for SQS alone.
  local sqs=(aws sqs --endpoint-url "$AWS_ENDPOINT_URL") body='a "body" with <marks> & ümläuts' url received
  url=$("${sqs[@]}" create-queue --queue-name "smoke-$1" --query QueueUrl)
  # Hidden for a second, so that only a poll that waits finds it.
  "${sqs[@]}" send-message --queue-url "$url" --message-body "$body" --delay-seconds 1 > /dev/null
  received=$("${sqs[@]}" receive-message --queue-url "$url" --wait-time-seconds 20 --max-number-of-messages 10 \
    --query 'Messages[].[ReceiptHandle, Body]')
  expect received "${received#*$'\t'}" "$body"
  "${sqs[@]}" delete-message --queue-url "$url" --receipt-handle "${received%%$'\t'*}"
  expect "left in the queue" "$("${sqs[@]}" get-queue-attributes --queue-url "$url" --query 'values(Attributes)' \
    --attribute-names ApproximateNumberOfMessages ApproximateNumberOfMessagesNotVisible)" $'0\t0'
  refused "an unknown queue" AWS.SimpleQueueService.NonExistentQueue "${sqs[@]}" get-queue-url --queue-name nowhere
  done_with "SQS over $1: sent, received by a long poll, deleted"
}

if [ "${1:-}" == --queues-only ]; then
  queue query
  exit
fi
stage
fleet
run
filter
pages
tags
errors
terminate
queue json
