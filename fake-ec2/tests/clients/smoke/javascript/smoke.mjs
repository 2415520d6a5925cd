// fake-ec2 as the AWS SDK for JavaScript sees it: version 3, and version 2 for SQS's older query protocol. The steps are those of
// ../README.md.

import {
  CreateFleetCommand,
  CreateLaunchTemplateCommand,
  CreateTagsCommand,
  DeleteTagsCommand,
  DescribeInstancesCommand,
  DescribeSecurityGroupsCommand,
  DescribeSubnetsCommand,
  DescribeTagsCommand,
  EC2Client,
  RunInstancesCommand,
  TerminateInstancesCommand,
  paginateDescribeInstances,
  waitUntilInstanceTerminated,
} from "@aws-sdk/client-ec2";
import {
  CreateQueueCommand,
  DeleteMessageCommand,
  GetQueueAttributesCommand,
  GetQueueUrlCommand,
  ReceiveMessageCommand,
  SQSClient,
  SendMessageCommand,
} from "@aws-sdk/client-sqs";
import { GetParameterCommand, SSMClient } from "@aws-sdk/client-ssm";
import { isDeepStrictEqual } from "node:util";

// No retries: a step is to see the first answer. Where the endpoint is, the environment says.
const once = { maxAttempts: 1 };
const ec2 = new EC2Client(once);
const ssm = new SSMClient(once);

function expect(what, got, wanted) {
  if (isDeepStrictEqual(got, wanted)) return;
  console.error(`${what}: expected ${JSON.stringify(wanted)}, and got ${JSON.stringify(got)}`);
  process.exit(1);
}

function done(step) {
  console.log(`ok  ${step}`);
}

async function refused(what, call, code, status) {
  try {
    await call();
  } catch (error) {
    expect(what, [error.name, error.$metadata?.httpStatusCode ?? error.statusCode], [code, status]);
    return;
  }
  expect(what, "an answer", `${code} with status ${status}`);
}

const discovery = { Name: "tag:karpenter.sh/discovery", Values: ["demo"] };

async function stage() {
  const Name = "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/standard/recommended/image_id";
  const image = (await ssm.send(new GetParameterCommand({ Name }))).Parameter.Value;
  const { Subnets } = await ec2.send(new DescribeSubnetsCommand({ Filters: [discovery] }));
  expect("subnets", Subnets.length, 3);
  const { SecurityGroups } = await ec2.send(new DescribeSecurityGroupsCommand({ Filters: [discovery] }));
  expect("security groups", SecurityGroups.length, 1);
  const { LaunchTemplate } = await ec2.send(
    new CreateLaunchTemplateCommand({
      LaunchTemplateName: "smoke",
      LaunchTemplateData: {
        ImageId: image,
        InstanceType: "m5.large",
        SecurityGroupIds: [SecurityGroups[0].GroupId],
        TagSpecifications: [{ ResourceType: "instance", Tags: [{ Key: "smoke", Value: "template" }] }],
      },
    }),
  );
  expect("version of the template", LaunchTemplate.LatestVersionNumber, 1);
  done("a stage: image, subnets, security group, launch template");
  return { subnets: Subnets.map((subnet) => subnet.SubnetId), template: LaunchTemplate.LaunchTemplateId };
}

async function fleet({ subnets, template }) {
  const answer = await ec2.send(
    new CreateFleetCommand({
      Type: "instant",
      TargetCapacitySpecification: { TotalTargetCapacity: 2, DefaultTargetCapacityType: "on-demand" },
      LaunchTemplateConfigs: [
        {
          LaunchTemplateSpecification: { LaunchTemplateId: template, Version: "$Latest" },
          Overrides: ["m5.large", "c5.large"].map((InstanceType) => ({ InstanceType, SubnetId: subnets[0] })),
        },
      ],
    }),
  );
  expect("errors of the fleet", answer.Errors ?? [], []);
  const ids = answer.Instances.flatMap((instance) => instance.InstanceIds);
  expect("instances of the fleet", ids.length, 2);
  done("a fleet launches 2 instances");
  return ids;
}

async function run({ subnets, template }) {
  const { Instances } = await ec2.send(
    new RunInstancesCommand({
      LaunchTemplate: { LaunchTemplateId: template },
      SubnetId: subnets[1],
      MinCount: 4,
      MaxCount: 4,
      TagSpecifications: [{ ResourceType: "instance", Tags: [{ Key: "smoke", Value: "run" }] }],
    }),
  );
  expect("states of what was run", Instances.map((instance) => instance.State.Name), Array(4).fill("pending"));
  done("RunInstances launches 4 instances");
  return Instances.map((instance) => instance.InstanceId);
}

async function filter(ran) {
  const filtered = async (Filters) => {
    const { Reservations } = await ec2.send(new DescribeInstancesCommand({ Filters }));
    return Reservations.flatMap((reservation) => reservation.Instances.map((instance) => instance.InstanceId)).sort();
  };
  const byTag = { Name: "tag:smoke", Values: ["run"] };
  expect("by tag", await filtered([byTag]), ran.toSorted());
  const m5 = { Name: "instance-type", Values: ["m5.*", "m6?.large"] };
  expect("by tag and type", await filtered([byTag, m5]), ran.toSorted());
  expect("by another type", await filtered([byTag, { Name: "instance-type", Values: ["c5.*"] }]), []);
  done("filters: joined by and, their values by or, with wildcards");
}

async function pages(all) {
  const sizes = [];
  const seen = [];
  for await (const page of paginateDescribeInstances({ client: ec2, pageSize: 5 }, {})) {
    const ids = page.Reservations.flatMap((reservation) => reservation.Instances.map((instance) => instance.InstanceId));
    sizes.push(ids.length);
    seen.push(...ids);
  }
  expect("sizes of pages", sizes, [5, 1]);
  expect("all pages", seen.sort(), all.toSorted());
  done("pages: each instance once");
}

async function tags([id]) {
  const tags = async () => {
    const Filters = [{ Name: "resource-id", Values: [id] }, { Name: "key", Values: ["step", "owner"] }];
    const { Tags } = await ec2.send(new DescribeTagsCommand({ Filters }));
    return Object.fromEntries((Tags ?? []).map((tag) => [tag.Key, tag.Value]));
  };
  const Tags = [{ Key: "step", Value: "a <b> & c" }, { Key: "owner", Value: "Zoë" }];
  await ec2.send(new CreateTagsCommand({ Resources: [id], Tags }));
  expect("tags", await tags(), { step: "a <b> & c", owner: "Zoë" });
  await ec2.send(new DeleteTagsCommand({ Resources: [id], Tags: [{ Key: "step" }] }));
  expect("tags after one is deleted", await tags(), { owner: "Zoë" });
  done("tags: created, described, deleted");
}

async function errors({ template, subnets }) {
  const describe = (id) => () => ec2.send(new DescribeInstancesCommand({ InstanceIds: [id] }));
  await refused("an unknown id", describe("i-0123456789abcdef0"), "InvalidInstanceID.NotFound", 400);
  await refused("no id", describe("instance"), "InvalidInstanceID.Malformed", 400);
  const dryRun = { LaunchTemplate: { LaunchTemplateId: template }, SubnetId: subnets[0], MinCount: 1, MaxCount: 1, DryRun: true };
  await refused("a dry run", () => ec2.send(new RunInstancesCommand(dryRun)), "DryRunOperation", 412);
  done("errors: code and status of three");
}

async function terminate(all) {
  const { TerminatingInstances } = await ec2.send(new TerminateInstancesCommand({ InstanceIds: all }));
  expect("states", TerminatingInstances.map((one) => one.CurrentState.Name), Array(6).fill("shutting-down"));
  await waitUntilInstanceTerminated({ client: ec2, maxWaitTime: 120, minDelay: 1, maxDelay: 1 }, { InstanceIds: all });
  done("all 6 instances are terminated");
}

async function queue() {
  const sqs = new SQSClient(once);
  const { QueueUrl } = await sqs.send(new CreateQueueCommand({ QueueName: "smoke-json" }));
  const calls = {
    send: (input) => sqs.send(new SendMessageCommand({ QueueUrl, ...input })),
    receive: (input) => sqs.send(new ReceiveMessageCommand({ QueueUrl, ...input })),
    delete: (input) => sqs.send(new DeleteMessageCommand({ QueueUrl, ...input })),
    attributes: (input) => sqs.send(new GetQueueAttributesCommand({ QueueUrl, ...input })),
  };
  await messages(calls);
  const missing = () => sqs.send(new GetQueueUrlCommand({ QueueName: "nowhere" }));
  await refused("an unknown queue", missing, "QueueDoesNotExist", 400);
  done("SQS over JSON: sent, received by a long poll, deleted");
}

async function olderQueue() {
  process.env.AWS_SDK_JS_SUPPRESS_MAINTENANCE_MODE_MESSAGE = "1";
  const { default: AWS } = await import("aws-sdk");
  // Version 2 knows no AWS_ENDPOINT_URL, and sends to the host of a queue's URL unless it is given another.
  const sqs = new AWS.SQS({ endpoint: process.env.AWS_ENDPOINT_URL, region: process.env.AWS_REGION, maxRetries: 0 });
  expect("protocol of version 2", sqs.api.protocol, "query");
  const created = await sqs.createQueue({ QueueName: "smoke-query" }).promise();
  const QueueUrl = new URL(new URL(created.QueueUrl).pathname, process.env.AWS_ENDPOINT_URL).href;
  await messages({
    send: (input) => sqs.sendMessage({ QueueUrl, ...input }).promise(),
    receive: (input) => sqs.receiveMessage({ QueueUrl, ...input }).promise(),
    delete: (input) => sqs.deleteMessage({ QueueUrl, ...input }).promise(),
    attributes: (input) => sqs.getQueueAttributes({ QueueUrl, ...input }).promise(),
  });
  const missing = () => sqs.getQueueUrl({ QueueName: "nowhere" }).promise();
  await refused("an unknown queue", missing, "AWS.SimpleQueueService.NonExistentQueue", 400);
  done("SQS over the query protocol: sent, received by a long poll, deleted");
}

async function messages(calls) {
  const MessageBody = 'a "body" with <marks> & ümläuts';
  // Hidden for a second, so that only a poll that waits finds it.
  await calls.send({ MessageBody, DelaySeconds: 1 });
  const { Messages } = await calls.receive({ WaitTimeSeconds: 20, MaxNumberOfMessages: 10 });
  expect("received", (Messages ?? []).map((message) => message.Body), [MessageBody]);
  await calls.delete({ ReceiptHandle: Messages[0].ReceiptHandle });
  const AttributeNames = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"];
  const { Attributes } = await calls.attributes({ AttributeNames });
  expect("left in the queue", Object.values(Attributes), ["0", "0"]);
}

const staged = await stage();
const all = await fleet(staged);
const ran = await run(staged);
all.push(...ran);
await filter(ran);
await pages(all);
await tags(ran);
await errors(staged);
await terminate(all);
await queue();
await olderQueue();
