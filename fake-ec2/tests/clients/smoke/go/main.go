// Command smoke is fake-ec2 as the AWS SDK for Go v2 sees it. The steps are those of ../README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/smithy-go"
)

const imageParameter = "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/standard/recommended/image_id"

var (
	ctx       = context.Background()
	discovery = []types.Filter{filterOf("tag:karpenter.sh/discovery", "demo")}
)

type smoke struct {
	ec2      *ec2.Client
	sqs      *sqs.Client
	ssm      *ssm.Client
	subnets  []string
	template *string
	all, ran []string
}

func main() {
	// No retries: a step is to see the first answer. Where the endpoint is, the environment says.
	configuration := must(config.LoadDefaultConfig(ctx, config.WithRetryMaxAttempts(1)))
	smoke := smoke{
		ec2: ec2.NewFromConfig(configuration),
		sqs: sqs.NewFromConfig(configuration),
		ssm: ssm.NewFromConfig(configuration),
	}
	smoke.stage()
	smoke.fleet()
	smoke.run()
	smoke.filter()
	smoke.pages()
	smoke.tags()
	smoke.errors()
	smoke.terminate()
	smoke.queue()
}

func expect(what string, got, wanted any) {
	if !reflect.DeepEqual(got, wanted) {
		fail("%s: expected %#v, and got %#v", what, wanted, got)
	}
}

func fail(format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", arguments...)
	os.Exit(1)
}

func must[T any](value T, err error) T {
	if err != nil {
		fail("%v", err)
	}
	return value
}

func done(step string) {
	fmt.Println("ok ", step)
}

func refused(what string, err error, code string, status int) {
	var api smithy.APIError
	var response *awshttp.ResponseError
	if !errors.As(err, &api) || !errors.As(err, &response) {
		fail("%s: expected %s with status %d, and got %v", what, code, status, err)
	}
	expect(what+": code", api.ErrorCode(), code)
	expect(what+": status", response.HTTPStatusCode(), status)
}

func filterOf(name string, values ...string) types.Filter {
	return types.Filter{Name: &name, Values: values}
}

func tag(key, value string) types.Tag {
	return types.Tag{Key: &key, Value: &value}
}

func idsOf(reservations []types.Reservation) []string {
	ids := []string{}
	for _, reservation := range reservations {
		for _, instance := range reservation.Instances {
			ids = append(ids, *instance.InstanceId)
		}
	}
	return ids
}

func sorted(ids []string) []string {
	return slices.Sorted(slices.Values(ids))
}

func (s *smoke) stage() {
	image := must(s.ssm.GetParameter(ctx, &ssm.GetParameterInput{Name: aws.String(imageParameter)})).Parameter.Value
	for _, subnet := range must(s.ec2.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{Filters: discovery})).Subnets {
		s.subnets = append(s.subnets, *subnet.SubnetId)
	}
	expect("subnets", len(s.subnets), 3)
	input := &ec2.DescribeSecurityGroupsInput{Filters: discovery}
	groups := must(s.ec2.DescribeSecurityGroups(ctx, input)).SecurityGroups
	expect("security groups", len(groups), 1)
	template := must(s.ec2.CreateLaunchTemplate(ctx, &ec2.CreateLaunchTemplateInput{
		LaunchTemplateName: aws.String("smoke"),
		LaunchTemplateData: &types.RequestLaunchTemplateData{
			ImageId:          image,
			InstanceType:     types.InstanceTypeM5Large,
			SecurityGroupIds: []string{*groups[0].GroupId},
			TagSpecifications: []types.LaunchTemplateTagSpecificationRequest{{
				ResourceType: types.ResourceTypeInstance,
				Tags:         []types.Tag{tag("smoke", "template")},
			}},
		},
	})).LaunchTemplate
	expect("version of the template", *template.LatestVersionNumber, int64(1))
	s.template = template.LaunchTemplateId
	done("a stage: image, subnets, security group, launch template")
}

func (s *smoke) fleet() {
	overrides := []types.FleetLaunchTemplateOverridesRequest{}
	for _, instanceType := range []types.InstanceType{types.InstanceTypeM5Large, types.InstanceTypeC5Large} {
		override := types.FleetLaunchTemplateOverridesRequest{InstanceType: instanceType, SubnetId: &s.subnets[0]}
		overrides = append(overrides, override)
	}
	answer := must(s.ec2.CreateFleet(ctx, &ec2.CreateFleetInput{
		Type: types.FleetTypeInstant,
		TargetCapacitySpecification: &types.TargetCapacitySpecificationRequest{
			TotalTargetCapacity:       aws.Int32(2),
			DefaultTargetCapacityType: types.DefaultTargetCapacityTypeOnDemand,
		},
		LaunchTemplateConfigs: []types.FleetLaunchTemplateConfigRequest{{
			LaunchTemplateSpecification: &types.FleetLaunchTemplateSpecificationRequest{
				LaunchTemplateId: s.template,
				Version:          aws.String("$Latest"),
			},
			Overrides: overrides,
		}},
	}))
	expect("errors of the fleet", len(answer.Errors), 0)
	for _, instance := range answer.Instances {
		s.all = append(s.all, instance.InstanceIds...)
	}
	expect("instances of the fleet", len(s.all), 2)
	done("a fleet launches 2 instances")
}

func (s *smoke) run() {
	instances := must(s.ec2.RunInstances(ctx, &ec2.RunInstancesInput{
		LaunchTemplate: &types.LaunchTemplateSpecification{LaunchTemplateId: s.template},
		SubnetId:       &s.subnets[1],
		MinCount:       aws.Int32(4),
		MaxCount:       aws.Int32(4),
		TagSpecifications: []types.TagSpecification{{
			ResourceType: types.ResourceTypeInstance,
			Tags:         []types.Tag{tag("smoke", "run")},
		}},
	})).Instances
	for _, instance := range instances {
		expect("state of what was run", instance.State.Name, types.InstanceStateNamePending)
		s.ran = append(s.ran, *instance.InstanceId)
	}
	expect("instances that were run", len(s.ran), 4)
	s.all = append(s.all, s.ran...)
	done("RunInstances launches 4 instances")
}

func (s *smoke) filter() {
	filtered := func(filters ...types.Filter) []string {
		input := &ec2.DescribeInstancesInput{Filters: filters}
		return sorted(idsOf(must(s.ec2.DescribeInstances(ctx, input)).Reservations))
	}
	byTag := filterOf("tag:smoke", "run")
	expect("by tag", filtered(byTag), sorted(s.ran))
	expect("by tag and type", filtered(byTag, filterOf("instance-type", "m5.*", "m6?.large")), sorted(s.ran))
	expect("by another type", len(filtered(byTag, filterOf("instance-type", "c5.*"))), 0)
	done("filters: joined by and, their values by or, with wildcards")
}

func (s *smoke) pages() {
	var sizes []int
	var seen []string
	paginator := ec2.NewDescribeInstancesPaginator(s.ec2, &ec2.DescribeInstancesInput{MaxResults: aws.Int32(5)})
	for paginator.HasMorePages() {
		ids := idsOf(must(paginator.NextPage(ctx)).Reservations)
		sizes = append(sizes, len(ids))
		seen = append(seen, ids...)
	}
	expect("sizes of pages", sizes, []int{5, 1})
	expect("all pages", sorted(seen), sorted(s.all))
	done("pages: each instance once")
}

func (s *smoke) tags() {
	id := s.ran[0]
	described := func() map[string]string {
		filters := []types.Filter{filterOf("resource-id", id), filterOf("key", "step", "owner")}
		tags := map[string]string{}
		for _, tag := range must(s.ec2.DescribeTags(ctx, &ec2.DescribeTagsInput{Filters: filters})).Tags {
			tags[*tag.Key] = *tag.Value
		}
		return tags
	}
	created := []types.Tag{tag("step", "a <b> & c"), tag("owner", "Zoë")}
	must(s.ec2.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{id}, Tags: created}))
	expect("tags", described(), map[string]string{"step": "a <b> & c", "owner": "Zoë"})
	deleted := []types.Tag{{Key: aws.String("step")}}
	must(s.ec2.DeleteTags(ctx, &ec2.DeleteTagsInput{Resources: []string{id}, Tags: deleted}))
	expect("tags after one is deleted", described(), map[string]string{"owner": "Zoë"})
	done("tags: created, described, deleted")
}

func (s *smoke) errors() {
	_, err := s.ec2.DescribeInstances(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{"i-0123456789abcdef0"}})
	refused("an unknown id", err, "InvalidInstanceID.NotFound", 400)
	_, err = s.ec2.DescribeInstances(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{"instance"}})
	refused("no id", err, "InvalidInstanceID.Malformed", 400)
	_, err = s.ec2.RunInstances(ctx, &ec2.RunInstancesInput{
		DryRun:         aws.Bool(true),
		LaunchTemplate: &types.LaunchTemplateSpecification{LaunchTemplateId: s.template},
		SubnetId:       &s.subnets[0],
		MinCount:       aws.Int32(1),
		MaxCount:       aws.Int32(1),
	})
	refused("a dry run", err, "DryRunOperation", 412)
	done("errors: code and status of three")
}

func (s *smoke) terminate() {
	ended := must(s.ec2.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: s.all})).TerminatingInstances
	expect("ended instances", len(ended), 6)
	for _, instance := range ended {
		expect("state", instance.CurrentState.Name, types.InstanceStateNameShuttingDown)
	}
	often := func(options *ec2.InstanceTerminatedWaiterOptions) {
		options.MinDelay, options.MaxDelay = time.Second, time.Second
	}
	waiter := ec2.NewInstanceTerminatedWaiter(s.ec2, often)
	if err := waiter.Wait(ctx, &ec2.DescribeInstancesInput{InstanceIds: s.all}, 2*time.Minute); err != nil {
		fail("waiting until all instances are terminated: %v", err)
	}
	done("all 6 instances are terminated")
}

func (s *smoke) queue() {
	url := must(s.sqs.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: aws.String("smoke-json")})).QueueUrl
	body := `a "body" with <marks> & ümläuts`
	// Hidden for a second, so that only a poll that waits finds it.
	must(s.sqs.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: url, MessageBody: &body, DelaySeconds: 1}))
	poll := &sqs.ReceiveMessageInput{QueueUrl: url, WaitTimeSeconds: 20, MaxNumberOfMessages: 10}
	messages := must(s.sqs.ReceiveMessage(ctx, poll)).Messages
	expect("received messages", len(messages), 1)
	expect("received", *messages[0].Body, body)
	must(s.sqs.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: url, ReceiptHandle: messages[0].ReceiptHandle}))
	left := must(s.sqs.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: url,
		AttributeNames: []sqstypes.QueueAttributeName{
			sqstypes.QueueAttributeNameApproximateNumberOfMessages,
			sqstypes.QueueAttributeNameApproximateNumberOfMessagesNotVisible,
		},
	})).Attributes
	none := map[string]string{"ApproximateNumberOfMessages": "0", "ApproximateNumberOfMessagesNotVisible": "0"}
	expect("left in the queue", left, none)
	_, err := s.sqs.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: aws.String("nowhere")})
	// The code of the query protocol, which the answer carries in a header; the type is the JSON protocol's.
	refused("an unknown queue", err, "AWS.SimpleQueueService.NonExistentQueue", 400)
	var missing *sqstypes.QueueDoesNotExist
	expect("an unknown queue: type", errors.As(err, &missing), true)
	done("SQS over JSON: sent, received by a long poll, deleted")
}
