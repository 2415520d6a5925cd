//! The state of the served cloud: instances by any of their names, and as a table.

use crate::cli::CliError;
use crate::cli::table::{Cell, Table};
use anyhow::{Context, anyhow};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;

/// What the control API answers, as far as it is shown here.
#[derive(Deserialize)]
pub(super) struct State {
    now: Timestamp,
    region: String,
    instances: Vec<Instance>,
    capacity: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Instance {
    pub(super) id: String,
    instance_type: String,
    zone: String,
    pub(super) capacity_type: String,
    state: String,
    launched_at: Timestamp,
    reclaim_at: Option<Timestamp>,
    price_per_hour_usd: Option<f64>,
    private_dns_name: String,
    tags: BTreeMap<String, String>,
}

impl Instance {
    fn lives(&self) -> bool {
        !matches!(self.state.as_str(), "terminated" | "shutting-down")
    }

    fn node_claim(&self) -> Option<&str> {
        self.tags.get("karpenter.sh/nodeclaim").map(String::as_str)
    }

    /// What a person may call it.
    fn names(&self) -> impl Iterator<Item = &str> {
        [self.id.as_str(), self.private_dns_name.as_str()].into_iter().chain(self.node_claim())
    }

    /// "i-0123 (NodeClaim default-x7k2p, m5.large in us-west-2a)".
    pub(super) fn described(&self) -> String {
        let claim = self.node_claim().map(|claim| format!("NodeClaim {claim}, ")).unwrap_or_default();
        format!("{} ({claim}{} in {})", self.id, self.instance_type, self.zone)
    }
}

/// So many names are offered where one is wrong; a person reads no more.
const OFFERED: usize = 8;

impl State {
    pub(super) fn read(value: &Value) -> Result<Self, CliError> {
        State::deserialize(value)
            .context(
                "the state of the cloud is not understood: its fake-ec2 and this program are of different versions",
            )
            .map_err(CliError::backend)
    }

    /// The instance of this id, node or NodeClaim; one that lives before one that has ended.
    pub(super) fn find(&self, name: &str) -> anyhow::Result<&Instance> {
        let mut called = self.instances.iter().filter(|instance| instance.names().any(|own| own == name));
        let found = called.clone().find(|instance| instance.lives()).or_else(|| called.next());
        found.ok_or_else(|| {
            let living: Vec<&Instance> = self.instances.iter().filter(|instance| instance.lives()).collect();
            let likeness = |own: &str| strsim::normalized_levenshtein(own, name);
            let nearest =
                living.iter().flat_map(|instance| instance.names()).max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
            match nearest {
                None => anyhow!("there is no instance or node {name:?}: no instance lives in {}", self.region),
                Some(nearest) => anyhow!(
                    "there is no instance or node {name:?}; the nearest is {nearest}; there are {}",
                    listed(living.iter().map(|instance| instance.id.as_str()))
                ),
            }
        })
    }

    /// "the spot instances are i-1, i-2", for whoever chose another.
    pub(super) fn spot_instances(&self) -> String {
        let spot: Vec<&str> = self
            .instances
            .iter()
            .filter(|instance| instance.lives() && instance.capacity_type == "spot")
            .map(|instance| instance.id.as_str())
            .collect();
        match spot.is_empty() {
            true => "no spot instance lives here".into(),
            false => format!("the spot instances are {}", listed(spot.into_iter())),
        }
    }

    /// "at 12:57:15Z, in 2m0s"; an instant that is past is told without the wait.
    pub(super) fn when(&self, at: &Value) -> String {
        let Some(at) = at.as_str().and_then(|at| at.parse::<Timestamp>().ok()) else { return "soon".into() };
        let left = at.duration_since(self.now).as_secs();
        let wait = if left > 0 { format!(", in {}", span(left)) } else { String::new() };
        format!("at {}{wait}", at.strftime("%H:%M:%SZ"))
    }

    pub(super) fn table(&self, all: bool, colours: bool) -> String {
        let mut shown: Vec<&Instance> =
            self.instances.iter().filter(|instance| all || instance.state != "terminated").collect();
        shown.sort_by(|a, b| (a.launched_at, &a.id).cmp(&(b.launched_at, &b.id)));
        let mut text = String::new();
        if !shown.is_empty() {
            let mut table =
                Table::new(["INSTANCE", "TYPE", "ZONE", "MARKET", "STATE", "NODECLAIM", "$/HOUR", "AGE", "NODE"]);
            for instance in &shown {
                table.row([
                    Cell::new(&instance.id),
                    Cell::new(&instance.instance_type),
                    Cell::new(&instance.zone),
                    Cell::new(&instance.capacity_type),
                    self.state(instance),
                    Cell::new(instance.node_claim().unwrap_or("-")),
                    Cell::new(instance.price_per_hour_usd.map_or("-".into(), |price| format!("{price:.4}"))),
                    Cell::new(span(self.now.duration_since(instance.launched_at).as_secs())),
                    Cell::new(&instance.private_dns_name),
                ]);
            }
            text += &table.render(colours);
        }
        let living = shown.iter().filter(|instance| instance.lives());
        let price: f64 = living.clone().filter_map(|instance| instance.price_per_hour_usd).sum();
        let _ = match living.count() {
            0 => writeln!(text, "No instance lives in {}.", self.region),
            1 => writeln!(text, "1 instance, ${price:.4} per hour."),
            count => writeln!(text, "{count} instances, ${price:.4} per hour."),
        };
        text + &shortages(&self.capacity)
    }

    fn state(&self, instance: &Instance) -> Cell {
        if let Some(at) = instance.reclaim_at.filter(|_| instance.lives()) {
            let left = at.duration_since(self.now).as_secs().max(0);
            return Cell::new(format!("{}, notice: {} left", instance.state, span(left))).yellow();
        }
        let cell = Cell::new(&instance.state);
        match instance.state.as_str() {
            "running" => cell.green(),
            "pending" => cell.yellow(),
            _ => cell.dim(),
        }
    }
}

fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    match names.len() > OFFERED {
        true => format!("{}, … ({} in all; `trysquare cloud` shows them)", names[..OFFERED].join(", "), names.len()),
        false => names.join(", "),
    }
}

/// Where capacity is short: the rules as they are tried, and the pools of limited size.
pub(super) fn shortages(capacity: &Value) -> String {
    let of = |value: &Value, member: &str| value[member].as_str().unwrap_or_default().to_owned();
    let rows = |member: &str| capacity[member].as_array().cloned().unwrap_or_default();
    let mut lines: Vec<String> = Vec::new();
    for rule in rows("rules") {
        let word = if rule["exhausted"] == true { "exhausted" } else { "restored " };
        let (market, name, zone) = (of(&rule, "capacityType"), of(&rule, "instanceType"), of(&rule, "zone"));
        lines.push(format!("{word}  {market:<9}  {name} in {zone}"));
    }
    for pool in rows("sized") {
        let (market, name, zone) = (of(&pool, "capacityType"), of(&pool, "instanceType"), of(&pool, "zone"));
        lines.push(format!("{:<9}  {market:<9}  {name} in {zone}", format!("{} left", pool["free"])));
    }
    let later = if lines.len() > 1 { " (a later line overrides an earlier one)" } else { "" };
    match lines.is_empty() {
        true => "No capacity is exhausted.\n".into(),
        false => format!("Capacity{later}:\n{}", lines.iter().map(|line| format!("  {line}\n")).collect::<String>()),
    }
}

/// Seconds as kubectl writes ages: `45s`, `3m10s`, `2h5m`, `3d4h`.
fn span(seconds: i64) -> String {
    match seconds.max(0) {
        seconds @ 0..120 => format!("{seconds}s"),
        seconds @ 120..7_200 => format!("{}m{}s", seconds / 60, seconds % 60),
        seconds @ 7_200..172_800 => format!("{}h{}m", seconds / 3_600, seconds % 3_600 / 60),
        seconds => format!("{}d{}h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ages_are_written_like_those_of_kubectl() {
        for (seconds, text) in [(-1, "0s"), (119, "119s"), (190, "3m10s"), (7_500, "2h5m"), (273_600, "3d4h")] {
            assert_eq!(span(seconds), text);
        }
    }

    #[test]
    fn shortages_are_told_in_the_order_in_which_they_decide() {
        let rule = |name: &str, exhausted: bool| json!({"instanceType": name, "zone": "*", "capacityType": "spot", "exhausted": exhausted});
        let sized = json!({"instanceType": "c5.large", "zone": "a", "capacityType": "on-demand", "free": 0});
        let text = shortages(&json!({"rules": [rule("*", true), rule("m5.large", false)], "sized": [sized]}));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "Capacity (a later line overrides an earlier one):",
                "  exhausted  spot       * in *",
                "  restored   spot       m5.large in *",
                "  0 left     on-demand  c5.large in a",
            ]
        );
        assert_eq!(shortages(&json!({"rules": [], "sized": []})), "No capacity is exhausted.\n");
    }
}
