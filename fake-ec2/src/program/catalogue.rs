//! `fake-ec2 actions`: what is played.

use super::arguments::Format;
use super::{Failure, print};
use serde_json::{Map, json};
use std::collections::BTreeMap;
use std::fmt::Write;

pub(crate) fn print_actions(format: Format) -> Result<(), Failure> {
    let mut by_service: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (service, action) in fake_ec2::actions() {
        by_service.entry(service.name()).or_default().push(action);
    }
    print(&match format {
        Format::Json => {
            let services: Map<_, _> =
                by_service.iter().map(|(name, actions)| ((*name).to_owned(), json!(actions))).collect();
            format!("{}\n", json!({ "actions": services }))
        }
        Format::Text => {
            let mut text = String::new();
            let width = by_service.keys().map(|name| name.len()).max().unwrap_or(0);
            for (service, actions) in &by_service {
                for action in actions {
                    let _ = writeln!(text, "{service:width$}  {action}");
                }
            }
            text
        }
    })
}
