//! What both servers need before they are measured, made and looked up by ordinary calls.

use crate::Fallible;
use crate::client::{self, Connection};
use serde_json::json;
use std::collections::BTreeSet;

/// The things that the measured requests name.
pub(crate) struct Stage {
    pub(crate) image: String,
    pub(crate) subnet: String,
    pub(crate) template: String,
    pub(crate) queue_url: String,
}

impl Stage {
    /// Looks up an image and a subnet, makes a launch template and a queue.
    pub(crate) fn set(connection: &mut Connection) -> Fallible<Self> {
        let filter = [("Filter.1.Name", "architecture"), ("Filter.1.Value.1", "x86_64")];
        let images = connection.text(&client::ec2("DescribeImages", &filter))?;
        let image = first(&images, "imageId")?;
        let subnets = connection.text(&client::ec2("DescribeSubnets", &[]))?;
        let subnet = first(&subnets, "subnetId")?;
        let template = [
            ("LaunchTemplateName", "bench"),
            ("LaunchTemplateData.ImageId", image.as_str()),
            ("LaunchTemplateData.InstanceType", "m5.large"),
        ];
        let answer = connection.text(&client::ec2("CreateLaunchTemplate", &template))?;
        let template = first(&answer, "launchTemplateId")?;
        let answer = connection.text(&client::sqs("CreateQueue", &json!({"QueueName": "bench-requests"})))?;
        let answer: serde_json::Value = serde_json::from_str(&answer)?;
        let queue_url = answer["QueueUrl"].as_str().ok_or("CreateQueue answered no URL")?.to_owned();
        Ok(Self { image, subnet, template, queue_url })
    }

    /// Launches instances in one call, with a tag that no other launch has; their ids are answered.
    pub(crate) fn launch(&self, connection: &mut Connection, count: usize, tag: &str) -> Fallible<Vec<String>> {
        let count = count.to_string();
        let parameters = [
            ("ImageId", self.image.as_str()),
            ("SubnetId", &self.subnet),
            ("InstanceType", "m5.large"),
            ("MinCount", &count),
            ("MaxCount", &count),
            ("TagSpecification.1.ResourceType", "instance"),
            ("TagSpecification.1.Tag.1.Key", "Name"),
            ("TagSpecification.1.Tag.1.Value", tag),
        ];
        let answer = connection.text(&client::ec2("RunInstances", &parameters))?;
        texts(&answer, "instanceId")
    }
}

pub(crate) fn first_page_of_instance_types(connection: &mut Connection) -> Fallible<String> {
    connection.text(&client::ec2("DescribeInstanceTypes", &[]))
}

/// The names of all instance types, from as many pages as there are.
pub(crate) fn all_instance_types(connection: &mut Connection) -> Fallible<BTreeSet<String>> {
    let mut page = first_page_of_instance_types(connection)?;
    let mut all = BTreeSet::new();
    loop {
        all.extend(texts(&page, "instanceType")?);
        let Ok(token) = first(&page, "nextToken") else { return Ok(all) };
        page = connection.text(&client::ec2("DescribeInstanceTypes", &[("NextToken", &token)]))?;
    }
}

/// How many `item`s the lists of this name hold.
pub(crate) fn items(answer: &str, list: &str) -> Fallible<usize> {
    let document = roxmltree::Document::parse(answer)?;
    let lists = document.descendants().filter(|node| node.tag_name().name() == list);
    Ok(lists.map(|list| list.children().filter(|child| child.tag_name().name() == "item").count()).sum())
}

/// The texts of all elements of this name.
pub(crate) fn texts(answer: &str, name: &str) -> Fallible<Vec<String>> {
    let document = roxmltree::Document::parse(answer)?;
    let elements = document.descendants().filter(|node| node.tag_name().name() == name);
    Ok(elements.filter_map(|node| node.text()).map(str::to_owned).collect())
}

fn first(answer: &str, name: &str) -> Fallible<String> {
    let all = texts(answer, name)?;
    all.into_iter().find(|text| !text.is_empty()).ok_or_else(|| format!("no {name} in {answer}").into())
}
