//! Requests as bytes, answers as bytes: the shapes of every protocol (aws spec §2.2, §2.8, appendix B).

mod common;

use bytes::Bytes;
use common::{Account, text, values};
use http::Request;
use serde_json::{Value, json};

#[tokio::test(start_paused = true)]
async fn ec2_refusals_have_their_document_and_status() {
    let account = Account::new();
    let (status, body) = account.ec2("DescribeInstanceTypes", &[("DryRun", "true")]).await;
    assert_eq!(status, 412);
    assert!(body.contains("<Response><Errors><Error><Code>DryRunOperation</Code><Message>Request would have succeeded, but DryRun flag is set.</Message></Error></Errors><RequestID>"), "{body}");
    for (action, params, expected) in [
        ("DescribeUnicorns", &[][..], "InvalidAction"),
        ("DescribeSubnets", &[("Colour", "blue")], "UnknownParameter"),
        ("DescribeSubnets", &[("Filter.1.Name", "colour"), ("Filter.1.Value.1", "blue")], "InvalidParameterValue"),
        ("DescribeSubnets", &[("MaxResults", "many")], "InvalidParameterValue"),
        ("DescribeSubnets", &[("NextToken", "??")], "InvalidNextToken"),
        ("DescribeSubnets", &[("SubnetId.1", "subnet-0")], "InvalidSubnetID.NotFound"),
        ("DescribeSecurityGroups", &[("GroupId.1", "sg-0")], "InvalidGroup.NotFound"),
        ("DescribeInstanceTypes", &[("MaxResults", "1")], "InvalidParameterValue"),
        ("DescribeInstanceTypes", &[("InstanceType.1", "m99.large")], "InvalidInstanceType"),
        ("DescribeInstances", &[("InstanceId.1", "i-0123456789abcdef0")], "InvalidInstanceID.NotFound"),
        ("DescribeInstances", &[("InstanceId.1", "worker")], "InvalidInstanceID.Malformed"),
        ("TerminateInstances", &[("InstanceId.1", "i-0123456789abcdef0")], "InvalidInstanceID.NotFound"),
        ("TerminateInstances", &[], "MissingParameter"),
        (
            "DescribeLaunchTemplates",
            &[("LaunchTemplateName.1", "nodes")],
            "InvalidLaunchTemplateName.NotFoundException",
        ),
        ("DescribeImages", &[("ImageId.1", "ami-0")], "InvalidAMIID.NotFound"),
        ("CreateTags", &[("ResourceId.1", "subnet-0"), ("Tag.1.Key", "a")], "InvalidSubnetID.NotFound"),
    ] {
        assert_eq!(account.refused(action, params).await, (400, expected.to_owned()), "{action} {params:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_service_is_told_from_scope_version_target_or_path() {
    let account = Account::new();
    let scope =
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20260101/us-west-2/ec2/aws4_request, SignedHeaders=host, Signature=0";
    let request = Request::post("/")
        .header("authorization", scope)
        .header("user-agent", "probe/1")
        .body("Action=DescribeVpcs".into())
        .unwrap();
    assert_eq!(account.ec2.handle(request).await.status(), 200);
    let entry = account.ec2.cloud().journal().pop().unwrap();
    assert_eq!((entry.service.name(), entry.action.as_str()), ("ec2", "DescribeVpcs"));
    assert_eq!((entry.caller.as_str(), entry.user_agent.as_str(), entry.status), ("AKIDEXAMPLE", "probe/1", 200));
    let get = Request::get("/?Action=DescribeVpcs&Version=2016-11-15").body(Bytes::new()).unwrap();
    assert_eq!(account.ec2.handle(get).await.status(), 200);
    let (status, body) = account.form("2011-06-15", "GetCallerIdentity", &[]).await;
    assert_eq!((status, values(&body, "Account")), (200, vec!["123456789012".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn subnets_are_found_by_discovery_tag() {
    let account = Account::new();
    let by_value = [("Filter.1.Name", "tag:karpenter.sh/discovery"), ("Filter.1.Value.1", "demo")];
    let body = account.ok("DescribeSubnets", &by_value).await;
    // They come in the order of their ids, which the seed decides.
    let mut zones = values(&body, "availabilityZone");
    zones.sort();
    assert_eq!(zones, ["us-west-2a", "us-west-2b", "us-west-2c"]);
    // A /19 has 8,192 addresses, five of them reserved.
    assert_eq!(values(&body, "availableIpAddressCount"), ["8187"; 3]);
    account.ec2.cloud().remove_tag(&account.setup.subnet_ids[0], "karpenter.sh/discovery").unwrap();
    let by_key = [("Filter.1.Name", "tag-key"), ("Filter.1.Value.1", "karpenter.sh/discovery")];
    assert_eq!(values(&account.ok("DescribeSubnets", &by_key).await, "subnetId").len(), 2);
    let groups = account.ok("DescribeSecurityGroups", &by_value).await;
    // The second time as the group whose members its first rule lets in.
    assert_eq!(values(&groups, "groupId"), [account.setup.security_group_id.as_str(); 2]);
    assert_eq!(values(&groups, "groupName"), ["eks-cluster-sg-demo"]);
}

#[tokio::test(start_paused = true)]
async fn instance_types_come_in_pages_with_their_published_facts() {
    let account = Account::new();
    let mut names = Vec::new();
    let mut token = String::new();
    let mut pages = 0;
    loop {
        let mut params = vec![
            ("Filter.1.Name", "processor-info.supported-architecture"),
            ("Filter.1.Value.1", "x86_64"),
            ("MaxResults", "5"),
        ];
        if !token.is_empty() {
            params.push(("NextToken", &token));
        }
        let body = account.ok("DescribeInstanceTypes", &params).await;
        names.extend(values(&body, "instanceType"));
        pages += 1;
        match values(&body, "nextToken").pop() {
            Some(next) => token = next,
            None => break,
        }
    }
    assert!(names.contains(&"m5.large".to_owned()) && !names.iter().any(|name| name.starts_with("m6g")), "{names:?}");
    assert_eq!(pages, names.len().div_ceil(5));
    let body = account.ok("DescribeInstanceTypes", &[("InstanceType.1", "m5.large")]).await;
    for (element, expected) in [
        ("defaultVCpus", "2"),
        ("sizeInMiB", "8192"),
        ("hypervisor", "nitro"),
        ("maximumNetworkInterfaces", "3"),
        ("ipv4AddressesPerInterface", "10"),
        ("maximumBandwidthInMbps", "4750"),
        ("ebsOptimizedSupport", "default"),
        ("sustainedClockSpeedInGhz", "3.1"),
        ("encryptionInTransitSupported", "false"),
        ("bareMetal", "false"),
        ("supportedArchitectures", "<item>x86_64</item>"),
        ("supportedUsageClasses", "<item>on-demand</item><item>spot</item>"),
    ] {
        assert_eq!(values(&body, element).first().map(String::as_str), Some(expected), "{element}");
    }
    let offerings = account
        .ok(
            "DescribeInstanceTypeOfferings",
            &[
                ("LocationType", "availability-zone"),
                ("Filter.1.Name", "instance-type"),
                ("Filter.1.Value.1", "m5.large"),
            ],
        )
        .await;
    assert_eq!(values(&offerings, "location"), ["us-west-2a", "us-west-2b", "us-west-2c", "us-west-2d"]);
}

#[tokio::test(start_paused = true)]
async fn spot_prices_have_one_present_record_per_type_and_zone() {
    let account = Account::new();
    let params = [
        ("ProductDescription.1", "Linux/UNIX"),
        ("ProductDescription.2", "Linux/UNIX (Amazon VPC)"),
        ("InstanceType.1", "m5.large"),
        ("MaxResults", "2000"),
    ];
    let body = account.ok("DescribeSpotPriceHistory", &params).await;
    assert_eq!(values(&body, "spotPrice"), ["0.031100", "0.038800", "0.041900", "0.034100"]);
    account.ec2.cloud().set_spot_price("m5.large", "us-west-2a", 0.05);
    assert_eq!(values(&account.ok("DescribeSpotPriceHistory", &params).await, "spotPrice")[0], "0.050000");
    account.ec2.cloud().withdraw_spot("m5.large", "us-west-2a");
    let body = account.ok("DescribeSpotPriceHistory", &params).await;
    assert_eq!(values(&body, "availabilityZone"), ["us-west-2b", "us-west-2c", "us-west-2d"]);
    account.template("nodes").await;
    let (_, body) = account.fleet("spot", 1, &[("m5.large", 0)], &[]).await;
    assert_eq!(values(&body, "errorCode"), ["InsufficientInstanceCapacity"]);
}

#[tokio::test(start_paused = true)]
async fn tags_are_overwritten_limited_and_kept_from_the_aws_prefix() {
    let account = Account::new();
    let subnet = account.setup.subnet_ids[0].as_str();
    account.ok("CreateTags", &[("ResourceId.1", subnet), ("Tag.1.Key", "Name"), ("Tag.1.Value", "new")]).await;
    let find = |subnets: Vec<fake_ec2::Subnet>| subnets.into_iter().find(|own| own.id == subnet).unwrap().tags;
    assert_eq!(find(account.ec2.cloud().subnets())["Name"], "new");
    let reserved = [("ResourceId.1", subnet), ("Tag.1.Key", "aws:mine"), ("Tag.1.Value", "x")];
    assert_eq!(account.refused("CreateTags", &reserved).await, (400, "InvalidParameterValue".into()));
    let keys: Vec<(String, String)> =
        (1..=49).map(|index| (format!("Tag.{index}.Key"), format!("key-{index}"))).collect();
    let mut many: Vec<(&str, &str)> = vec![("ResourceId.1", subnet)];
    many.extend(keys.iter().map(|(key, value)| (key.as_str(), value.as_str())));
    assert_eq!(account.refused("CreateTags", &many).await, (400, "TagLimitExceeded".into()), "51 tags");
    account.ok("DeleteTags", &[("ResourceId.1", subnet), ("Tag.1.Key", "Name"), ("Tag.1.Value", "other")]).await;
    assert_eq!(find(account.ec2.cloud().subnets())["Name"], "new", "another value protects the tag");
    account.ok("DeleteTags", &[("ResourceId.1", subnet), ("Tag.1.Key", "Name")]).await;
    assert!(!find(account.ec2.cloud().subnets()).contains_key("Name"));
}

#[tokio::test(start_paused = true)]
async fn sqs_speaks_json_and_the_query_protocol() {
    let account = Account::new();
    let (status, value, response) = account.json("AmazonSQS.GetQueueUrl", json!({"QueueName": "none"})).await;
    assert_eq!((status, value["__type"].as_str()), (400, Some("com.amazonaws.sqs#QueueDoesNotExist")));
    assert_eq!(response.headers()["x-amzn-query-error"], "AWS.SimpleQueueService.NonExistentQueue;Sender");
    assert!(!response.headers().contains_key("date"));
    let url = account.sqs("GetQueueUrl", json!({"QueueName": "demo"})).await["QueueUrl"].clone();
    assert_eq!(url, "https://sqs.us-west-2.amazonaws.com/123456789012/demo");
    let sent = account.sqs("SendMessage", json!({"QueueUrl": url, "MessageBody": "hello"})).await;
    assert_eq!(sent["MD5OfMessageBody"], "5d41402abc4b2a76b9719d911017c592");
    let receive = json!({"QueueUrl": url, "AttributeNames": ["SentTimestamp"], "VisibilityTimeout": 20, "MaxNumberOfMessages": 10});
    let received = account.sqs("ReceiveMessage", receive.clone()).await;
    let message = &received["Messages"][0];
    assert_eq!(
        (&message["Body"], &message["MD5OfBody"]),
        (&json!("hello"), &json!("5d41402abc4b2a76b9719d911017c592"))
    );
    assert_eq!(message["Attributes"], json!({"SentTimestamp": "1767225600000"}));
    assert_eq!(
        account.sqs("ReceiveMessage", receive).await,
        json!({}),
        "the message is hidden for its visibility timeout"
    );
    let attributes = account.sqs("GetQueueAttributes", json!({"QueueUrl": url, "AttributeNames": ["All"]})).await;
    assert_eq!(attributes["Attributes"]["ApproximateNumberOfMessagesNotVisible"], "1");
    account.sqs("DeleteMessage", json!({"QueueUrl": url, "ReceiptHandle": message["ReceiptHandle"]})).await;
    assert_eq!(account.ec2.cloud().queue_counts("demo"), Some((0, 0, 0)));
    for (input, code) in [
        (json!({"QueueUrl": url, "MaxNumberOfMessages": 11}), "InvalidParameterValue"),
        (json!({"QueueUrl": url, "WaitTimeSeconds": 21}), "InvalidParameterValue"),
    ] {
        let (status, value, _) = account.json("AmazonSQS.ReceiveMessage", input).await;
        assert_eq!((status, value["__type"].as_str()), (400, Some(format!("com.amazonaws.sqs#{code}").as_str())));
    }
    let url = url.as_str().unwrap();
    let (status, body) = account.form("2012-11-05", "SendMessage", &[("QueueUrl", url), ("MessageBody", "a<b")]).await;
    assert_eq!((status, values(&body, "MessageId").len()), (200, 1), "{body}");
    let (_, body) =
        account.form("2012-11-05", "ReceiveMessage", &[("QueueUrl", url), ("AttributeName.1", "SentTimestamp")]).await;
    assert_eq!(values(&body, "Body"), ["a&lt;b"]);
    let (status, body) = account.form("2012-11-05", "GetQueueUrl", &[("QueueName", "none")]).await;
    assert_eq!((status, values(&body, "Code")), (400, vec!["AWS.SimpleQueueService.NonExistentQueue".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn iam_profiles_hold_one_role_and_name_what_is_missing() {
    let account = Account::new();
    let (status, body) = account.iam("GetInstanceProfile", &[("InstanceProfileName", "p")]).await;
    assert_eq!(
        (status, values(&body, "Code"), values(&body, "Message")),
        (404, vec!["NoSuchEntity".into()], vec!["Instance Profile p cannot be found.".into()])
    );
    assert!(body.starts_with("<ErrorResponse><Error><Type>Sender</Type>"), "{body}");
    let create = [
        ("InstanceProfileName", "p"),
        ("Path", "/karpenter/us-west-2/demo/1/"),
        ("Tags.member.1.Key", "a"),
        ("Tags.member.1.Value", "b"),
    ];
    let (status, body) = account.iam("CreateInstanceProfile", &create).await;
    assert_eq!(
        (status, values(&body, "Arn")),
        (200, vec!["arn:aws:iam::123456789012:instance-profile/karpenter/us-west-2/demo/1/p".into()])
    );
    assert_eq!(account.iam("CreateInstanceProfile", &create).await.0, 409);
    let (status, body) =
        account.iam("AddRoleToInstanceProfile", &[("InstanceProfileName", "p"), ("RoleName", "ghost")]).await;
    assert_eq!((status, values(&body, "Message")), (404, vec!["The role with name ghost cannot be found.".into()]));
    let role = account.setup.node_role_name.as_str();
    let add = [("InstanceProfileName", "p"), ("RoleName", role)];
    assert_eq!(account.iam("AddRoleToInstanceProfile", &add).await.0, 200);
    let (status, body) = account.iam("AddRoleToInstanceProfile", &add).await;
    assert_eq!((status, values(&body, "Code")), (409, vec!["LimitExceeded".into()]));
    let (_, body) = account.iam("ListInstanceProfiles", &[("PathPrefix", "/karpenter/us-west-2/demo/")]).await;
    assert_eq!(
        (values(&body, "InstanceProfileName"), values(&body, "RoleName")),
        (vec!["p".into()], vec![role.into()])
    );
    let (status, body) = account.iam("DeleteInstanceProfile", &[("InstanceProfileName", "p")]).await;
    assert_eq!((status, values(&body, "Code")), (409, vec!["DeleteConflict".into()]));
    assert_eq!(account.iam("RemoveRoleFromInstanceProfile", &add).await.0, 200);
    assert_eq!(account.iam("DeleteInstanceProfile", &[("InstanceProfileName", "p")]).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn image_parameters_name_images_that_exist() {
    let account = Account::new();
    let name = "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/arm64/standard/recommended/image_id";
    let (status, value, _) = account.json("AmazonSSM.GetParameter", json!({"Name": name})).await;
    assert_eq!((status, value["Parameter"]["Name"].as_str()), (200, Some(name)));
    let image = value["Parameter"]["Value"].as_str().unwrap().to_owned();
    let body = account
        .ok(
            "DescribeImages",
            &[
                ("Filter.1.Name", "image-id"),
                ("Filter.1.Value.1", &image),
                ("Filter.2.Name", "state"),
                ("Filter.2.Value.1", "available"),
                ("IncludeDeprecated", "true"),
                ("MaxResults", "1000"),
            ],
        )
        .await;
    assert_eq!((values(&body, "imageId"), values(&body, "architecture")), (vec![image], vec!["arm64".into()]));
    assert_eq!(values(&body, "name"), ["amazon-eks-node-al2023-arm64-standard-1.36-v20251217"]);
    let (status, value, _) = account.json("AmazonSSM.GetParameter", json!({"Name": "/none"})).await;
    assert_eq!((status, value["__type"].as_str()), (400, Some("ParameterNotFound")));
    let al2 = "/aws/service/eks/optimized-ami/1.36/amazon-linux-2/recommended/image_id";
    assert_eq!(account.json("AmazonSSM.GetParameter", json!({"Name": al2})).await.0, 400, "AL2 ends with 1.32");
}

#[tokio::test(start_paused = true)]
async fn products_are_json_texts_with_prices_as_text() {
    let account = Account::new();
    let filter = |field: &str, value: &str| json!({"Type": "TERM_MATCH", "Field": field, "Value": value});
    let query = |more: Vec<Value>| {
        let mut filters = vec![
            filter("regionCode", "us-west-2"),
            filter("serviceCode", "AmazonEC2"),
            filter("preInstalledSw", "NA"),
            filter("operatingSystem", "Linux"),
            filter("capacitystatus", "Used"),
            filter("marketoption", "OnDemand"),
        ];
        filters.extend(more);
        json!({"ServiceCode": "AmazonEC2", "MaxResults": 100, "Filters": filters})
    };
    let shared = query(vec![filter("tenancy", "Shared"), filter("productFamily", "Compute Instance")]);
    let (status, value, _) = account.json("AWSPriceListService.GetProducts", shared).await;
    assert_eq!(status, 200);
    let products: Vec<Value> = value["PriceList"]
        .as_array()
        .unwrap()
        .iter()
        .map(|text| serde_json::from_str(text.as_str().unwrap()).unwrap())
        .collect();
    let large = products.iter().find(|product| product["product"]["attributes"]["instanceType"] == "m5.large").unwrap();
    let term = large["terms"]["OnDemand"].as_object().unwrap().values().next().unwrap();
    let dimension = term["priceDimensions"].as_object().unwrap().values().next().unwrap();
    assert_eq!(dimension["pricePerUnit"]["USD"], "0.0960000000");
    assert!(!products.iter().any(|product| product["product"]["attributes"]["instanceType"] == "m5.metal"));
    let metal = query(vec![filter("tenancy", "Dedicated"), filter("productFamily", "Compute Instance (bare metal)")]);
    let (_, value, _) = account.json("AWSPriceListService.GetProducts", metal).await;
    assert!(!value["PriceList"].as_array().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn eks_describes_clusters_and_access_entries() {
    let account = Account::new();
    let get = |path: &str| Request::get(path).body(Bytes::new()).unwrap();
    let response = account.ec2.handle(get("/clusters/demo")).await;
    let value: Value = serde_json::from_slice(response.body()).unwrap();
    let cluster = &value["cluster"];
    assert_eq!((&cluster["version"], &cluster["status"]), (&json!("1.36"), &json!("ACTIVE")));
    assert_eq!(cluster["kubernetesNetworkConfig"]["serviceIpv4Cidr"], "10.100.0.0/16");
    assert_eq!(cluster["arn"], "arn:aws:eks:us-west-2:123456789012:cluster/demo");
    let response = account.ec2.handle(get("/clusters/none")).await;
    assert_eq!(
        (response.status().as_u16(), &response.headers()["x-amzn-errortype"]),
        (404, &"ResourceNotFoundException".parse().unwrap())
    );
    let encoded: String = form_urlencoded::byte_serialize(account.setup.node_role_arn.as_bytes()).collect();
    let response = account.ec2.handle(get(&format!("/clusters/demo/access-entries/{encoded}"))).await;
    let value: Value = serde_json::from_slice(response.body()).unwrap();
    assert_eq!(value["accessEntry"]["type"], "EC2_LINUX");
    let body = json!({"principalArn": "arn:aws:iam::123456789012:role/other"}).to_string();
    let post = || Request::post("/clusters/demo/access-entries").body(Bytes::from(body.clone())).unwrap();
    assert_eq!(account.ec2.handle(post()).await.status(), 200);
    assert_eq!(account.ec2.handle(post()).await.status(), 409);
    assert_eq!(account.ec2.cloud().cluster("demo").unwrap().access_entries.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn garbage_is_refused_and_never_breaks_anything() {
    let account = Account::new();
    for (request, status) in [
        (Request::get("/").body(Bytes::new()), 400),
        (Request::post("/").body(Bytes::from_static(b"\xff\xfe%%%=&&==")), 400),
        (Request::post("/").body(Bytes::from_static(b"Action=DescribeSubnets")), 400),
        (Request::post("/").header("x-amz-target", "AmazonSQS.SendMessage").body(Bytes::from_static(b"{")), 400),
        (Request::post("/").header("x-amz-target", "AmazonSQS.SendMessage").body(Bytes::from_static(b"[]")), 400),
        (Request::post("/").header("x-amz-target", "AmazonSQS.Fly").body(Bytes::new()), 400),
        (Request::post("/").header("x-amz-target", "Nobody.Knows").body(Bytes::new()), 400),
        (
            Request::post("/")
                .header("x-amz-target", "AmazonSSM.GetParameter")
                .body(Bytes::from_static(b"{\"Name\": 7}")),
            400,
        ),
        (Request::delete("/clusters/%ff/%zz").body(Bytes::new()), 404),
        (Request::post("/").body(vec![b'a'; 5 << 20].into()), 413),
    ] {
        let request = request.unwrap();
        let described = format!("{request:?}").chars().take(120).collect::<String>();
        let response = account.ec2.handle(request).await;
        assert_eq!(response.status().as_u16(), status, "{described}: {}", text(&response));
    }
}
