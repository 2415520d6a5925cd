"""SQS, SSM, Pricing, EKS, IAM, STS and EventBridge through boto3."""

import gzip
import json
import pathlib

import botocore
import botocore.session
import pytest


@pytest.fixture(params=["json", "query"])
def sqs(request, fresh, tmp_path, monkeypatch):
    """SQS by its present protocol, and by the one that clients used before 2023."""
    if request.param == "query":
        older_sqs(tmp_path)
        monkeypatch.setenv("AWS_DATA_PATH", str(tmp_path))
    client = fresh.client("sqs")
    assert client.meta.service_model.resolved_protocol == request.param
    return client


def older_sqs(folder):
    """botocore's model of SQS as it was: the query protocol, each result in an element of its own."""
    present = pathlib.Path(botocore.__file__).parent / "data/sqs/2012-11-05"
    model = json.loads(gzip.decompress((present / "service-2.json.gz").read_bytes()))
    for member in ("jsonVersion", "targetPrefix", "awsQueryCompatible"):
        del model["metadata"][member]
    model["metadata"].update(
        protocol="query", protocols=["query"], xmlNamespace="http://queue.amazonaws.com/doc/2012-11-05/"
    )
    for name, operation in model["operations"].items():
        if "output" in operation:
            operation["output"]["resultWrapper"] = f"{name}Result"
    older_codes = {"QueueDoesNotExist": "AWS.SimpleQueueService.NonExistentQueue", "QueueNameExists": "QueueAlreadyExists"}
    for name in (
        "BatchEntryIdsNotDistinct",
        "EmptyBatchRequest",
        "InvalidBatchEntryId",
        "PurgeQueueInProgress",
        "QueueDeletedRecently",
    ):
        older_codes[name] = f"AWS.SimpleQueueService.{name}"
    for name, code in older_codes.items():
        model["shapes"][name]["error"] = {"code": code}
    # Flattened lists and maps name their elements after the one, not the many.
    names = {
        "AttributeNameList": "AttributeName",
        "MessageSystemAttributeList": "MessageSystemAttributeName",
        "QueueAttributeMap": "Attribute",
        "MessageSystemAttributeMap": "Attribute",
        "MessageBodyAttributeMap": "MessageAttribute",
        "MessageAttributeNameList": "MessageAttributeName",
        "MessageList": "Message",
        "QueueUrlList": "QueueUrl",
        "SendMessageBatchRequestEntryList": "SendMessageBatchRequestEntry",
        "SendMessageBatchResultEntryList": "SendMessageBatchResultEntry",
        "DeleteMessageBatchRequestEntryList": "DeleteMessageBatchRequestEntry",
        "DeleteMessageBatchResultEntryList": "DeleteMessageBatchResultEntry",
        "BatchResultErrorEntryList": "BatchResultErrorEntry",
        "TagMap": "Tag",
        "TagKeyList": "TagKey",
        "AWSAccountIdList": "AWSAccountId",
        "ActionNameList": "ActionName",
        "MessageBodySystemAttributeMap": "MessageSystemAttribute",
        "ChangeMessageVisibilityBatchRequestEntryList": "ChangeMessageVisibilityBatchRequestEntry",
        "ChangeMessageVisibilityBatchResultEntryList": "ChangeMessageVisibilityBatchResultEntry",
        "ListMessageMoveTasksResultEntryList": "ListMessageMoveTasksResultEntry",
    }
    for name, shape in model["shapes"].items():
        for member in shape.get("members", {}).values():
            if member["shape"] in names:
                member["locationName"] = names[member["shape"]]
        if shape["type"] == "map" and shape.get("flattened"):
            shape["key"]["locationName"] = "Key" if name == "TagMap" else "Name"
            shape["value"]["locationName"] = "Value"
    target = folder / "sqs/2012-11-05"
    target.mkdir(parents=True)
    (target / "service-2.json").write_text(json.dumps(model))


def test_messages_are_sent_received_and_deleted(sqs):
    url = sqs.create_queue(QueueName="work", Attributes={"VisibilityTimeout": "60"})["QueueUrl"]
    assert sqs.get_queue_url(QueueName="work")["QueueUrl"] == url
    assert url in sqs.list_queues(QueueNamePrefix="wo")["QueueUrls"]
    sent = sqs.send_message(QueueUrl=url, MessageBody="one <&> two")
    (message,) = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=5, AttributeNames=["All"])["Messages"]
    assert message["Body"] == "one <&> two"
    assert (message["MessageId"], message["MD5OfBody"]) == (sent["MessageId"], sent["MD5OfMessageBody"])
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"
    asked = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "VisibilityTimeout", "QueueArn"]
    attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=asked)["Attributes"]
    assert attributes == {
        "ApproximateNumberOfMessages": "0",
        "ApproximateNumberOfMessagesNotVisible": "1",
        "VisibilityTimeout": "60",
        "QueueArn": "arn:aws:sqs:us-west-2:123456789012:work",
    }
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0)
    (again,) = sqs.receive_message(QueueUrl=url)["Messages"]
    sqs.delete_message(QueueUrl=url, ReceiptHandle=again["ReceiptHandle"])
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "0"})
    assert "Messages" not in sqs.receive_message(QueueUrl=url)
    sqs.send_message(QueueUrl=url, MessageBody="rest")
    sqs.purge_queue(QueueUrl=url)
    assert "Messages" not in sqs.receive_message(QueueUrl=url)
    sqs.delete_queue(QueueUrl=url)
    assert url not in sqs.list_queues().get("QueueUrls", [])


def test_batches_answer_for_each_entry(sqs):
    url = sqs.create_queue(QueueName="batch")["QueueUrl"]
    entries = [{"Id": "a", "MessageBody": "one"}, {"Id": "b", "MessageBody": "two"}]
    sent = sqs.send_message_batch(QueueUrl=url, Entries=entries)
    assert [entry["Id"] for entry in sent["Successful"]] == ["a", "b"] and not sent.get("Failed")
    messages = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    assert sorted(message["Body"] for message in messages) == ["one", "two"]
    entries = [{"Id": "x", "ReceiptHandle": messages[0]["ReceiptHandle"]}, {"Id": "y", "ReceiptHandle": "nonsense"}]
    deleted = sqs.delete_message_batch(QueueUrl=url, Entries=entries)
    assert [entry["Id"] for entry in deleted["Successful"]] == ["x"]
    (failed,) = deleted["Failed"]
    assert (failed["Id"], failed["Code"], failed["SenderFault"]) == ("y", "ReceiptHandleIsInvalid", True)


def test_a_queue_that_does_not_exist_is_refused_by_its_old_code(sqs, refused):
    code, message, status = refused(sqs.get_queue_url, QueueName="nobody")
    assert (code, status) == ("AWS.SimpleQueueService.NonExistentQueue", 400)
    assert message.startswith("The specified queue does not exist")
    with pytest.raises(sqs.exceptions.QueueDoesNotExist):
        sqs.get_queue_url(QueueName="nobody")


def test_an_out_of_range_value_is_refused(sqs, refused, fresh):
    url = fresh.stage["queueUrl"]
    assert refused(sqs.receive_message, QueueUrl=url, MaxNumberOfMessages=11)[::2] == ("InvalidParameterValue", 400)
    assert refused(sqs.receive_message, QueueUrl=url, WaitTimeSeconds=21)[::2] == ("InvalidParameterValue", 400)


def test_tags_and_permissions(sqs, refused):
    url = sqs.create_queue(QueueName="shared", tags={"team": "a", "stage": "test"})["QueueUrl"]
    sqs.tag_queue(QueueUrl=url, Tags={"team": "b"})
    sqs.untag_queue(QueueUrl=url, TagKeys=["stage"])
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"team": "b"}
    sqs.add_permission(QueueUrl=url, Label="l", AWSAccountIds=["111122223333"], Actions=["SendMessage"])
    policy = json.loads(sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"])["Attributes"]["Policy"])
    assert policy["Statement"][0]["Action"] in ("SQS:SendMessage", ["SQS:SendMessage"])
    sqs.remove_permission(QueueUrl=url, Label="l")
    assert "Attributes" not in sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"])
    with pytest.raises(sqs.exceptions.OverLimit):
        actions = ["SendMessage", "ReceiveMessage", "DeleteMessage", "GetQueueUrl", "PurgeQueue"]
        actions += ["GetQueueAttributes", "ChangeMessageVisibility", "ListDeadLetterSourceQueues"]
        sqs.add_permission(QueueUrl=url, Label="l", AWSAccountIds=["111122223333"], Actions=actions)
    assert refused(sqs.set_queue_attributes, QueueUrl=url, Attributes={"DelaySeconds": "901"})[::2] == (
        "InvalidAttributeValue",
        400,
    )


def test_message_attributes_come_back_as_they_went(sqs):
    # botocore compares the digest of a body itself; the one of attributes is compared with the one of the other side.
    url = sqs.create_queue(QueueName="attributes")["QueueUrl"]
    attributes = {
        "color": {"DataType": "String.favourite", "StringValue": "red <&> blue"},
        "count": {"DataType": "Number", "StringValue": "1.5e3"},
        "blob": {"DataType": "Binary", "BinaryValue": b"\x00\x01\xff"},
    }
    trace = "Root=1-5759e988-bd862e3fe1be46a994272793"
    system = {"AWSTraceHeader": {"DataType": "String", "StringValue": trace}}
    sent = sqs.send_message(QueueUrl=url, MessageBody="x", MessageAttributes=attributes, MessageSystemAttributes=system)
    assert sent["MD5OfMessageSystemAttributes"] == "62a56dd927315f2b2e12832b84617ea5"
    asked = {"MessageAttributeNames": ["All"], "MessageSystemAttributeNames": ["AWSTraceHeader"]}
    (message,) = sqs.receive_message(QueueUrl=url, **asked)["Messages"]
    assert message["MessageAttributes"] == attributes
    assert message["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    assert message["Attributes"] == {"AWSTraceHeader": trace}


def test_a_fifo_queue_keeps_the_order_of_groups(sqs, refused):
    attributes = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
    url = sqs.create_queue(QueueName="work.fifo", Attributes=attributes)["QueueUrl"]
    for body in ["1", "2", "2"]:
        assert int(sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId="g")["SequenceNumber"]) > 1 << 60
    (first,) = sqs.receive_message(QueueUrl=url, AttributeNames=["All"])["Messages"]
    assert (first["Body"], first["Attributes"]["MessageGroupId"]) == ("1", "g")
    assert "Messages" not in sqs.receive_message(QueueUrl=url), "the group is locked"
    sqs.delete_message(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])
    messages = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    assert [message["Body"] for message in messages] == ["2"], "the repetition was a duplicate"
    assert refused(sqs.send_message, QueueUrl=url, MessageBody="x")[::2] == ("MissingParameter", 400)


def test_dead_letters_and_back(sqs, refused):
    def arn(url):
        return sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]

    dead = sqs.create_queue(QueueName="dead")["QueueUrl"]
    policy = json.dumps({"deadLetterTargetArn": arn(dead), "maxReceiveCount": 1})
    attributes = {"RedrivePolicy": policy, "VisibilityTimeout": "0"}
    work = sqs.create_queue(QueueName="work", Attributes=attributes)["QueueUrl"]
    paginator = sqs.get_paginator("list_dead_letter_source_queues")
    assert [url for page in paginator.paginate(QueueUrl=dead) for url in page["queueUrls"]] == [work]
    sqs.send_message(QueueUrl=work, MessageBody="poison")
    assert sqs.receive_message(QueueUrl=work)["Messages"]
    assert "Messages" not in sqs.receive_message(QueueUrl=work)
    asked = {"AttributeNames": ["DeadLetterQueueSourceArn"], "VisibilityTimeout": 0}
    (message,) = sqs.receive_message(QueueUrl=dead, WaitTimeSeconds=5, **asked)["Messages"]
    assert (message["Body"], message["Attributes"]["DeadLetterQueueSourceArn"]) == ("poison", arn(work))
    assert sqs.start_message_move_task(SourceArn=arn(dead))["TaskHandle"]
    (message,) = sqs.receive_message(QueueUrl=work, WaitTimeSeconds=5)["Messages"]
    assert message["Body"] == "poison"
    (task,) = sqs.list_message_move_tasks(SourceArn=arn(dead))["Results"]
    assert task["ApproximateNumberOfMessagesMoved"] == 1
    code, _, status = refused(sqs.start_message_move_task, SourceArn=arn(work))
    assert (code, status) == ("InvalidParameterValue", 400)
    with pytest.raises(sqs.exceptions.ResourceNotFoundException):
        sqs.list_message_move_tasks(SourceArn=arn(work) + "-none")


def test_errors_are_those_that_botocore_knows(sqs):
    url = sqs.create_queue(QueueName="short-lived")["QueueUrl"]
    known = sqs.exceptions
    for error, function, arguments in [
        (known.EmptyBatchRequest, sqs.send_message_batch, {"Entries": []}),
        (known.InvalidBatchEntryId, sqs.send_message_batch, {"Entries": [{"Id": "a b", "MessageBody": "x"}]}),
        (known.BatchEntryIdsNotDistinct, sqs.delete_message_batch, {"Entries": [{"Id": "a", "ReceiptHandle": "x"}] * 2}),
        (known.ReceiptHandleIsInvalid, sqs.delete_message, {"ReceiptHandle": "x"}),
        (known.InvalidAttributeName, sqs.set_queue_attributes, {"Attributes": {"Colour": "red"}}),
        (known.InvalidMessageContents, sqs.send_message, {"MessageBody": "\x01"}),
    ]:
        with pytest.raises(error):
            function(QueueUrl=url, **arguments)
    sqs.purge_queue(QueueUrl=url)
    with pytest.raises(known.PurgeQueueInProgress):
        sqs.purge_queue(QueueUrl=url)
    with pytest.raises(known.QueueNameExists):
        sqs.create_queue(QueueName="short-lived", Attributes={"DelaySeconds": "1"})
    sqs.delete_queue(QueueUrl=url)
    with pytest.raises(known.QueueDeletedRecently):
        sqs.create_queue(QueueName="short-lived")


def test_an_sqs_action_that_is_not_there_is_refused(shared):
    model = shared.client("sqs").meta.service_model
    assert len(model.operation_names) == 23, "a new action of SQS is played too"


def test_parameters_by_name_and_path(shared, refused):
    ssm = shared.client("ssm")
    path = "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/standard"
    name = f"{path}/recommended/image_id"
    image = ssm.get_parameter(Name=name)["Parameter"]["Value"]
    assert shared.client("ec2").describe_images(ImageIds=[image])["Images"][0]["Architecture"] == "x86_64"
    several = ssm.get_parameters(Names=[name, "/no/such"])
    assert [parameter["Value"] for parameter in several["Parameters"]] == [image]
    assert several["InvalidParameters"] == ["/no/such"]
    assert ssm.get_parameters_by_path(Path=path)["Parameters"] == [], "its parameters lie deeper"
    paginator = ssm.get_paginator("get_parameters_by_path")
    pages = list(paginator.paginate(Path="/aws/service/eks", Recursive=True, PaginationConfig={"PageSize": 3}))
    names = [parameter["Name"] for page in pages for parameter in page["Parameters"]]
    assert name in names and len(names) == len(set(names))
    assert all(len(page["Parameters"]) <= 3 for page in pages)
    assert len(ssm.get_parameters_by_path(Path="/aws/service/eks", Recursive=True)["Parameters"]) == 10
    assert refused(ssm.get_parameters_by_path, Path="/aws", MaxResults=11)[::2] == ("ValidationException", 400)
    assert refused(ssm.get_parameter, Name="/no/such")[::2] == ("ParameterNotFound", 400)
    with pytest.raises(ssm.exceptions.ParameterNotFound):
        ssm.get_parameter(Name="/no/such")


def test_products_have_the_published_price(shared, refused):
    pricing = shared.client("pricing")
    wanted = {
        "regionCode": "us-west-2",
        "instanceType": "m5.large",
        "tenancy": "Shared",
        "operatingSystem": "Linux",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
    }
    filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in wanted.items()]
    (product,) = pricing.get_products(ServiceCode="AmazonEC2", Filters=filters)["PriceList"]
    (term,) = json.loads(product)["terms"]["OnDemand"].values()
    (dimension,) = term["priceDimensions"].values()
    assert (float(dimension["pricePerUnit"]["USD"]), dimension["unit"]) == (0.096, "Hrs")
    pages = list(
        pricing.get_paginator("get_products").paginate(ServiceCode="AmazonEC2", PaginationConfig={"PageSize": 7})
    )
    products = [product for page in pages for product in page["PriceList"]]
    assert len(pages) > 1 and len(set(products)) == len(products)
    assert refused(pricing.get_products, ServiceCode="AmazonS3")[::2] == ("InvalidParameterException", 400)


def test_the_cluster_and_its_access_entries(fresh, refused):
    eks = fresh.client("eks")
    assert eks.list_clusters()["clusters"] == ["demo"]
    cluster = eks.describe_cluster(name="demo")["cluster"]
    assert (cluster["status"], cluster["version"]) == ("ACTIVE", "1.36")
    assert cluster["kubernetesNetworkConfig"]["serviceIpv4Cidr"] == "10.100.0.0/16"
    assert cluster["resourcesVpcConfig"]["vpcId"] == fresh.stage["vpcId"]
    role = fresh.stage["nodeRoleArn"]
    assert eks.list_access_entries(clusterName="demo")["accessEntries"] == [role]
    entry = eks.describe_access_entry(clusterName="demo", principalArn=role)["accessEntry"]
    assert (entry["type"], entry["kubernetesGroups"]) == ("EC2_LINUX", ["system:nodes"])
    eks.delete_access_entry(clusterName="demo", principalArn=role)
    missing = {"clusterName": "demo", "principalArn": role}
    assert refused(eks.describe_access_entry, **missing)[::2] == ("ResourceNotFoundException", 404)
    eks.create_access_entry(clusterName="demo", principalArn=role, type="EC2_LINUX")
    again = {**missing, "type": "EC2_LINUX"}
    assert refused(eks.create_access_entry, **again)[::2] == ("ResourceInUseException", 409)
    code, message, status = refused(eks.describe_cluster, name="other")
    assert (code, message, status) == ("ResourceNotFoundException", "No cluster found for name: other.", 404)
    with pytest.raises(eks.exceptions.ResourceNotFoundException):
        eks.describe_cluster(name="other")


def test_roles_and_instance_profiles(fresh, refused):
    iam = fresh.client("iam")
    name = fresh.stage["nodeRoleName"]
    role = iam.get_role(RoleName=name)["Role"]
    assert role["Arn"] == fresh.stage["nodeRoleArn"]
    assert role["AssumeRolePolicyDocument"]["Statement"][0]["Principal"] == {"Service": "ec2.amazonaws.com"}
    assert name in [role["RoleName"] for page in iam.get_paginator("list_roles").paginate() for role in page["Roles"]]
    tags = [{"Key": "a", "Value": "b"}]
    profile = iam.create_instance_profile(InstanceProfileName="nodes", Tags=tags)["InstanceProfile"]
    assert profile["Roles"] == []
    iam.add_role_to_instance_profile(InstanceProfileName="nodes", RoleName=name)
    profile = iam.get_instance_profile(InstanceProfileName="nodes")["InstanceProfile"]
    assert [role["RoleName"] for role in profile["Roles"]] == [name] and profile["Tags"] == tags
    (found,) = iam.list_instance_profiles_for_role(RoleName=name)["InstanceProfiles"]
    assert found["InstanceProfileName"] == "nodes"
    second = {"InstanceProfileName": "nodes", "RoleName": name}
    assert refused(iam.add_role_to_instance_profile, **second)[::2] == ("LimitExceeded", 409)
    assert refused(iam.create_instance_profile, InstanceProfileName="nodes")[::2] == ("EntityAlreadyExists", 409)
    assert refused(iam.delete_instance_profile, InstanceProfileName="nodes")[::2] == ("DeleteConflict", 409)
    iam.remove_role_from_instance_profile(InstanceProfileName="nodes", RoleName=name)
    iam.delete_instance_profile(InstanceProfileName="nodes")
    assert refused(iam.get_instance_profile, InstanceProfileName="nodes")[::2] == ("NoSuchEntity", 404)
    with pytest.raises(iam.exceptions.NoSuchEntityException):
        iam.get_role(RoleName="nobody")
    assert refused(iam.list_users)[::2] == ("InvalidAction", 400)


def test_who_is_calling(shared, refused):
    sts = shared.client("sts")
    assert sts.get_caller_identity()["Account"] == "123456789012"
    assumed = sts.assume_role(RoleArn=shared.stage["nodeRoleArn"], RoleSessionName="test")
    assert assumed["AssumedRoleUser"]["Arn"].endswith("assumed-role/KarpenterNodeRole-demo/test")
    assert assumed["Credentials"]["AccessKeyId"].startswith("ASIA")
    token = sts.get_session_token(DurationSeconds=900)["Credentials"]
    same = shared.client("sts", credentials=token).get_caller_identity()
    assert same["Arn"] == sts.get_caller_identity()["Arn"]
    assert sts.get_access_key_info(AccessKeyId=token["AccessKeyId"])["Account"] == "123456789012"
    assert refused(sts.get_federation_token, Name="somebody")[::2] == ("InvalidAction", 400)


def test_event_rules_lead_to_a_queue(fresh, refused):
    events, sqs = fresh.client("events"), fresh.client("sqs")
    assert len(events.list_rules(NamePrefix="demo-")["Rules"]) == 4
    url = sqs.create_queue(QueueName="mine")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    events.put_rule(Name="mine", EventPattern=json.dumps({"source": ["my.app"]}))
    assert events.put_targets(Rule="mine", Targets=[{"Id": "q", "Arn": arn}])["FailedEntryCount"] == 0
    assert events.list_targets_by_rule(Rule="mine")["Targets"] == [{"Id": "q", "Arn": arn}]
    entry = {"Source": "my.app", "DetailType": "Happened", "Detail": json.dumps({"a": 1})}
    sent = events.put_events(Entries=[entry])
    assert sent["FailedEntryCount"] == 0
    (message,) = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=10)["Messages"]
    body = json.loads(message["Body"])
    assert (body["detail-type"], body["detail"]) == ("Happened", {"a": 1})
    assert body["id"] == sent["Entries"][0]["EventId"]
    assert json.loads(events.describe_rule(Name="mine")["EventPattern"]) == {"source": ["my.app"]}
    events.remove_targets(Rule="mine", Ids=["q"])
    events.delete_rule(Name="mine")
    assert refused(events.describe_rule, Name="mine")[::2] == ("ResourceNotFoundException", 400)
    assert refused(events.put_rule, Name="x", EventPattern="{")[::2] == ("InvalidEventPatternException", 400)


def test_a_json_action_that_is_not_there_is_refused(shared, refused):
    assert refused(shared.client("ssm").list_documents)[::2] == ("UnknownOperationException", 400)
    assert refused(shared.client("events").list_archives)[::2] == ("UnknownOperationException", 400)
    pricing = shared.client("pricing")
    arguments = {"ServiceCode": "AmazonEC2", "EffectiveDate": 0, "CurrencyCode": "USD"}
    assert refused(pricing.list_price_lists, **arguments)[::2] == ("UnknownOperationException", 400)
    assert refused(shared.client("eks").list_nodegroups, clusterName="demo")[2] == 404


def test_parameters_of_ones_own(fresh, refused):
    ssm = fresh.client("ssm")
    tags = [{"Key": "team", "Value": "a"}]
    assert ssm.put_parameter(Name="/my/size", Value="one", Type="String", Tags=tags)["Version"] == 1
    assert ssm.put_parameter(Name="/my/size", Value="two", Overwrite=True)["Version"] == 2
    assert ssm.label_parameter_version(Name="/my/size", ParameterVersion=1, Labels=["good"])["InvalidLabels"] == []
    for name, value in [("/my/size", "two"), ("/my/size:1", "one"), ("/my/size:good", "one")]:
        assert ssm.get_parameter(Name=name)["Parameter"]["Value"] == value
    ssm.put_parameter(Name="/my/secret", Value="hidden", Type="SecureString")
    assert ssm.get_parameter(Name="/my/secret")["Parameter"]["Value"] != "hidden"
    assert ssm.get_parameter(Name="/my/secret", WithDecryption=True)["Parameter"]["Value"] == "hidden"
    filters = [{"Key": "tag:team", "Values": ["a"]}]
    (described,) = ssm.describe_parameters(ParameterFilters=filters)["Parameters"]
    assert (described["Name"], described["Tier"], described["Version"]) == ("/my/size", "Standard", 2)
    history = ssm.get_paginator("get_parameter_history").paginate(Name="/my/size", PaginationConfig={"PageSize": 1})
    assert [version["Value"] for page in history for version in page["Parameters"]] == ["one", "two"]
    assert ssm.list_tags_for_resource(ResourceType="Parameter", ResourceId="/my/size")["TagList"] == tags
    for error, function, arguments in [
        (ssm.exceptions.ParameterAlreadyExists, ssm.put_parameter, {"Value": "x", "Type": "String"}),
        (ssm.exceptions.HierarchyTypeMismatchException, ssm.put_parameter, {"Value": "x", "Type": "StringList", "Overwrite": True}),
        (ssm.exceptions.ParameterVersionNotFound, ssm.label_parameter_version, {"Labels": ["x"], "ParameterVersion": 9}),
    ]:
        with pytest.raises(error):
            function(Name="/my/size", **arguments)
    assert ssm.delete_parameters(Names=["/my/size", "/none"])["DeletedParameters"] == ["/my/size"]
    assert refused(ssm.get_parameter, Name="/my/size")[::2] == ("ParameterNotFound", 400)


def test_the_price_list_tells_its_attributes(shared):
    pricing = shared.client("pricing")
    (service,) = pricing.describe_services(ServiceCode="AmazonEC2")["Services"]
    assert "instanceType" in service["AttributeNames"]
    pages = pricing.get_paginator("get_attribute_values").paginate(ServiceCode="AmazonEC2", AttributeName="vcpu")
    assert {"2", "4", "8"} <= {value["Value"] for page in pages for value in page["AttributeValues"]}
    filters = [{"Type": "ANY_OF", "Field": "instanceType", "Value": "m5.large,c5.large"}]
    filters.append({"Type": "EQUALS", "Field": "tenancy", "Value": "Shared"})
    assert len(pricing.get_products(ServiceCode="AmazonEC2", Filters=filters)["PriceList"]) == 2


def test_rules_with_filters_tags_and_switches(fresh, refused):
    events, sqs = fresh.client("events"), fresh.client("sqs")
    url = sqs.create_queue(QueueName="mine")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    pattern = {"source": [{"prefix": "my."}], "detail": {"size": [{"numeric": [">", 4]}], "name": [{"wildcard": "a*z"}]}}
    rule = events.put_rule(Name="r", EventPattern=json.dumps(pattern), Tags=[{"Key": "a", "Value": "b"}])["RuleArn"]
    assert events.list_tags_for_resource(ResourceARN=rule)["Tags"] == [{"Key": "a", "Value": "b"}]
    events.put_targets(Rule="r", Targets=[{"Id": "q", "Arn": arn, "InputPath": "$.detail"}])
    assert events.list_rule_names_by_target(TargetArn=arn)["RuleNames"] == ["r"]
    details = [{"size": 5, "name": "abcz"}, {"size": 4, "name": "abcz"}, {"size": 9, "name": "abc"}]
    entries = [{"Source": "my.app", "DetailType": "t", "Detail": json.dumps(detail)} for detail in details]
    sent = events.put_events(Entries=[*entries, {"Source": "my.app", "DetailType": "t", "Detail": "{"}])
    assert (sent["FailedEntryCount"], sent["Entries"][3]["ErrorCode"]) == (1, "MalformedDetail")
    (message,) = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=5, MaxNumberOfMessages=10)["Messages"]
    assert json.loads(message["Body"]) == details[0]
    events.disable_rule(Name="r")
    assert events.describe_rule(Name="r")["State"] == "DISABLED"
    assert [bus["Name"] for bus in events.list_event_buses()["EventBuses"]] == ["default"]
    assert refused(events.list_rules, EventBusName="other")[::2] == ("ResourceNotFoundException", 400)


def test_policy_versions_and_tags(fresh, refused):
    iam = fresh.client("iam")
    document = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
    arn = iam.create_policy(PolicyName="p", PolicyDocument=json.dumps(document))["Policy"]["Arn"]
    document["Statement"][0]["Effect"] = "Deny"
    second = {"PolicyArn": arn, "PolicyDocument": json.dumps(document), "SetAsDefault": True}
    assert iam.create_policy_version(**second)["PolicyVersion"]["VersionId"] == "v2"
    version = iam.get_policy_version(PolicyArn=arn, VersionId="v2")["PolicyVersion"]
    assert version["Document"] == document and version["IsDefaultVersion"]
    pages = iam.get_paginator("list_policy_versions").paginate(PolicyArn=arn, PaginationConfig={"PageSize": 1})
    assert [version["VersionId"] for page in pages for version in page["Versions"]] == ["v2", "v1"]
    name = fresh.stage["nodeRoleName"]
    iam.attach_role_policy(RoleName=name, PolicyArn=arn)
    assert [role["RoleName"] for role in iam.list_entities_for_policy(PolicyArn=arn)["PolicyRoles"]] == [name]
    iam.tag_policy(PolicyArn=arn, Tags=[{"Key": "a", "Value": "b"}])
    assert iam.list_policy_tags(PolicyArn=arn)["Tags"] == [{"Key": "a", "Value": "b"}]
    iam.update_role(RoleName=name, Description="nodes", MaxSessionDuration=7200)
    role = iam.get_role(RoleName=name)["Role"]
    assert (role["Description"], role["MaxSessionDuration"]) == ("nodes", 7200)
    assert iam.get_account_summary()["SummaryMap"]["Policies"] == 1
    assert refused(iam.delete_policy_version, PolicyArn=arn, VersionId="v2")[::2] == ("DeleteConflict", 409)


def test_clusters_and_access_policies(fresh, refused):
    eks = fresh.client("eks")
    role = fresh.stage["nodeRoleArn"]
    network = {"subnetIds": fresh.stage["subnetIds"]}
    created = eks.create_cluster(name="new", roleArn=role, resourcesVpcConfig=network, tags={"a": "b"})["cluster"]
    assert created["status"] == "CREATING"
    assert eks.list_tags_for_resource(resourceArn=created["arn"])["tags"] == {"a": "b"}
    eks.untag_resource(resourceArn=created["arn"], tagKeys=["a"])
    pages = eks.get_paginator("list_clusters").paginate(PaginationConfig={"PageSize": 1})
    assert [name for page in pages for name in page["clusters"]] == ["demo", "new"]
    update = eks.update_cluster_config(name="demo", accessConfig={"authenticationMode": "API"})["update"]
    assert eks.describe_update(name="demo", updateId=update["id"])["update"]["type"] == "AccessConfigUpdate"
    person = "arn:aws:iam::123456789012:role/ann"
    named = {"clusterName": "demo", "principalArn": person}
    eks.create_access_entry(**named)
    assert eks.update_access_entry(**named, kubernetesGroups=["viewers"])["accessEntry"]["kubernetesGroups"] == ["viewers"]
    policies = {policy["name"]: policy["arn"] for policy in eks.list_access_policies()["accessPolicies"]}
    scope = {"type": "namespace", "namespaces": ["team"]}
    view = policies["AmazonEKSViewPolicy"]
    eks.associate_access_policy(**named, policyArn=view, accessScope=scope)
    (associated,) = eks.list_associated_access_policies(**named)["associatedAccessPolicies"]
    assert (associated["policyArn"], associated["accessScope"]) == (view, scope)
    assert eks.list_access_entries(clusterName="demo", associatedPolicyArn=view)["accessEntries"] == [person]
    eks.disassociate_access_policy(**named, policyArn=view)
    assert refused(eks.delete_cluster, name="new")[::2] == ("ResourceInUseException", 409)
