//! Kept members on their way back: the paths of a request as the elements of an answer.

use crate::cloud::members::Members;
use crate::wire::xml::Xml;
use std::collections::BTreeMap;

/// A member, or what is below it. Keys keep the order of numbers.
#[derive(Default)]
struct Node<'a> {
    text: Option<&'a str>,
    below: BTreeMap<(u32, &'a str), Node<'a>>,
}

impl<'a> Node<'a> {
    fn insert(&mut self, path: &'a str, value: &'a str) {
        let (head, rest) = path.split_once('.').map_or((path, None), |(head, rest)| (head, Some(rest)));
        let key = head.parse().map_or((0, head), |number| (number, ""));
        let node = self.below.entry(key).or_default();
        match rest {
            Some(rest) => node.insert(rest, value),
            None => node.text = Some(value),
        }
    }

    fn is_list(&self) -> bool {
        self.below.keys().next().is_some_and(|(_, name)| name.is_empty())
    }

    fn write(&self, xml: &mut Xml, name: &str) {
        match self.text {
            Some(text) => xml.text(name, text),
            None => xml.element(name, |xml| self.write_below(xml)),
        }
    }

    fn write_below(&self, xml: &mut Xml) {
        for ((_, name), node) in &self.below {
            match name.is_empty() {
                true => node.write(xml, "item"),
                false => node.write(xml, &answered_name(name, node.is_list())),
            }
        }
    }
}

/// Writes every member.
pub(super) fn write(xml: &mut Xml, members: &Members) {
    tree(members).write_below(xml);
}

/// Writes the members below one name, without an element around them.
pub(super) fn write_below(xml: &mut Xml, members: &Members, name: &str) {
    if let Some(node) = tree(members).below.get(&(0, name)) {
        node.write_below(xml);
    }
}

fn tree(members: &Members) -> Node<'_> {
    let mut root = Node::default();
    members.iter().for_each(|(path, value)| root.insert(path, value));
    root
}

/// EC2 answers a member under the name it was asked by, in lower camel case; lists end in `Set`.
fn answered_name(name: &str, list: bool) -> String {
    match (name, list) {
        ("LicenseSpecification", true) => return "licenseSet".into(),
        ("PrivateIpAddress", true) => return "privateIpAddressesSet".into(),
        _ => {}
    }
    let mut answered = name.to_owned();
    answered[..1].make_ascii_lowercase();
    if list {
        answered.push_str("Set");
    }
    answered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_elements() {
        let members: Members = [
            ("CpuOptions.CoreCount", "2"),
            ("LicenseSpecification.1.LicenseConfigurationArn", "a"),
            ("CpuManufacturer.10", "amd"),
            ("CpuManufacturer.2", "intel"),
            ("VCpuCount.Min", "1"),
        ]
        .map(|(path, value)| (path.to_owned(), value.to_owned()))
        .into_iter()
        .collect();
        let mut xml = Xml::new();
        write(&mut xml, &members);
        assert_eq!(
            xml.into_string(),
            "<cpuManufacturerSet><item>intel</item><item>amd</item></cpuManufacturerSet>\
             <cpuOptions><coreCount>2</coreCount></cpuOptions>\
             <licenseSet><item><licenseConfigurationArn>a</licenseConfigurationArn></item></licenseSet>\
             <vCpuCount><min>1</min></vCpuCount>"
        );
    }
}
