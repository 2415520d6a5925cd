//! Puts a chronicle together from what a backend's watchers and wires tell.

use super::bounded::{Ends, Series};
use super::lanes::Tracker;
use super::{
    CALL_OBJECTS, Chronicle, CloudCall, Cost, CostStep, ENTRIES, Event, Eviction, InstanceFacts, InstancePhase,
    NodeClaimFacts, NodeClaimPhase, NodeFacts, NodePhase, POINTS, PodFacts, PodPhase, StepSpan, objects,
};
use crate::backend::CONTROLLER;
use crate::recorder::{Call, Wire};
use crate::story;
use controller_clock::Clock;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

/// Different events that are told apart. Ten times as many as are kept: which of them come last is not known before.
const EVENTS_FOLLOWED: usize = 10 * ENTRIES;
/// Pods whose eviction was asked for and not granted yet.
const EVICTIONS_FOLLOWED: usize = 10 * ENTRIES;
const MS_PER_HOUR: f64 = 3_600_000.0;

/// Collects what happens in a scenario. Cheap to clone; all clones write to the same record.
#[derive(Clone, Default)]
pub struct Chronicler(Arc<Mutex<State>>);

/// An instance as a cloud shows it.
#[derive(Clone, Debug)]
pub struct SeenInstance {
    /// Its id.
    pub id: String,
    /// The phase it is in.
    pub phase: InstancePhase,
    /// Since when.
    pub since: Timestamp,
    /// The NodePool that its tags name.
    pub node_pool: Option<String>,
    /// What else is known of it.
    pub facts: InstanceFacts,
}

/// How an object was last seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sighting {
    /// For the first time: it is there already, or was created.
    Added,
    /// It changed.
    Modified,
    /// It is gone; this is its last state.
    Deleted,
}

struct State {
    clock: Option<Clock>,
    began_at: Timestamp,
    steps: Vec<StepSpan>,
    is_in_step: bool,
    pods: Tracker<PodFacts, PodPhase>,
    node_claims: Tracker<NodeClaimFacts, NodeClaimPhase>,
    nodes: Tracker<NodeFacts, NodePhase>,
    instances: Tracker<InstanceFacts, InstancePhase>,
    were_ready: BTreeSet<String>,
    evictions: Ends<Eviction>,
    evictions_asked: BTreeMap<String, Eviction>,
    evicted: BTreeSet<String>,
    calls: Ends<CloudCall>,
    events: BTreeMap<EventKey, Event>,
    events_lost: u64,
    running: BTreeMap<String, f64>,
    cost: Series<f64>,
    cost_since_ms: u64,
    cost_now: f64,
    cost_peak: f64,
    cost_total: f64,
}

/// Object, reason and message of an event: an equal one is the same event once more.
type EventKey = (String, String, String);

impl Default for State {
    fn default() -> Self {
        Self {
            clock: None,
            began_at: Timestamp::UNIX_EPOCH,
            steps: Vec::new(),
            is_in_step: false,
            pods: Tracker::default(),
            node_claims: Tracker::default(),
            nodes: Tracker::default(),
            instances: Tracker::default(),
            were_ready: BTreeSet::new(),
            evictions: Ends::new(ENTRIES),
            evictions_asked: BTreeMap::new(),
            evicted: BTreeSet::new(),
            calls: Ends::new(ENTRIES),
            events: BTreeMap::new(),
            events_lost: 0,
            running: BTreeMap::new(),
            cost: Series::new(POINTS),
            cost_since_ms: 0,
            cost_now: 0.0,
            cost_peak: 0.0,
            cost_total: 0.0,
        }
    }
}

impl Chronicler {
    /// The scenario begins: its times are counted from the present instant of this clock.
    pub fn begin(&self, clock: Clock) {
        let mut state = self.state();
        state.began_at = clock.now();
        state.clock = Some(clock);
    }

    /// The next step begins.
    pub fn step_began(&self) {
        let mut state = self.state();
        let now_ms = state.now_ms();
        state.is_in_step = true;
        state.steps.push(StepSpan { began_ms: now_ms, ended_ms: now_ms });
    }

    /// The present step has ended, well or badly.
    pub fn step_ended(&self) {
        self.state().end_step();
    }

    pub(crate) fn pod(&self, sighting: Sighting, pod: &Value) {
        let mut state = self.state();
        let at_ms = state.now_ms();
        let name = objects::name(pod);
        let phase = match sighting {
            Sighting::Deleted => PodPhase::Gone,
            _ => objects::pod_phase(pod),
        };
        if phase == PodPhase::Gone {
            state.evicted.remove(&name);
        }
        let id = objects::text(pod, "/metadata/uid");
        state.pods.saw(at_ms, id, (&name, &objects::owner(pod)), phase, |facts| objects::pod_facts(pod, facts));
    }

    pub(crate) fn node_claim(&self, sighting: Sighting, claim: &Value) {
        let mut state = self.state();
        let at_ms = state.now_ms();
        let phase = match sighting {
            Sighting::Deleted => NodeClaimPhase::Gone,
            _ => objects::node_claim_phase(claim),
        };
        let id = objects::text(claim, "/metadata/uid");
        state.node_claims.saw(at_ms, id, (&objects::name(claim), &objects::pool(claim)), phase, |facts| {
            objects::node_claim_facts(claim, facts);
        });
    }

    pub(crate) fn node(&self, sighting: Sighting, node: &Value) {
        let mut state = self.state();
        let at_ms = state.now_ms();
        let id = objects::text(node, "/metadata/uid");
        let phase = match sighting {
            Sighting::Deleted => NodePhase::Gone,
            _ => objects::node_phase(node, state.were_ready.contains(id)),
        };
        match phase {
            NodePhase::Ready => drop(state.were_ready.insert(id.to_owned())),
            NodePhase::Gone => drop(state.were_ready.remove(id)),
            _ => {}
        }
        state.nodes.saw(at_ms, id, (&objects::name(node), &objects::pool(node)), phase, |facts| {
            objects::node_facts(node, facts);
        });
    }

    /// An event; those of others than the controller are passed over.
    pub(crate) fn event(&self, sighting: Sighting, event: &Value) {
        let component = ["/reportingComponent", "/source/component"].map(|pointer| objects::text(event, pointer));
        if sighting == Sighting::Deleted || !component.contains(&CONTROLLER) {
            return;
        }
        let mut state = self.state();
        let at_ms = state.now_ms();
        let subject = &event["involvedObject"];
        let part = |key: &str| subject[key].as_str().unwrap_or_default();
        let name = match (part("kind"), part("namespace")) {
            // The events of what has no namespace are kept in one, which says nothing about it.
            ("Node" | "NodeClaim" | "NodePool" | "EC2NodeClass", _) | (_, "") => part("name").to_owned(),
            (_, namespace) => format!("{namespace}/{}", part("name")),
        };
        let reason = objects::text(event, "/reason").to_owned();
        if part("kind") == "NodeClaim" && objects::is_fatal(&reason) {
            for facts in state.node_claims.facts_mut(&name) {
                facts.reason.get_or_insert_with(|| reason.clone());
            }
        }
        let object = format!("{}/{name}", part("kind"));
        let message = objects::text(event, "/message").to_owned();
        let key = (object, reason, message);
        let is_full = state.events.len() == EVENTS_FOLLOWED;
        match state.events.get_mut(&key) {
            Some(known) => {
                known.last_ms = at_ms;
                known.count += 1;
            }
            None if is_full => state.events_lost += 1,
            None => {
                let (object, reason, message) = key.clone();
                let count = event["count"].as_u64().unwrap_or(1).max(1);
                let kind = objects::text(event, "/type").to_owned();
                let new = Event { at_ms, last_ms: at_ms, count, kind, reason, object, message };
                state.events.insert(key, new);
            }
        }
    }

    /// An instance, as often as it changes.
    pub fn instance(&self, seen: &SeenInstance) {
        let mut state = self.state();
        let at_ms = state.offset_ms(seen.since);
        let group = objects::pool_of_tag(seen.node_pool.as_deref()).to_owned();
        state.instances.saw(at_ms, &seen.id, (&seen.id, &group), seen.phase, |facts| {
            // The price at the launch is what stays; the market moves on.
            let usd_per_hour = facts.usd_per_hour.or(seen.facts.usd_per_hour);
            *facts = InstanceFacts { usd_per_hour, ..seen.facts.clone() };
        });
        let runs = matches!(seen.phase, InstancePhase::Running | InstancePhase::Notice);
        match (runs, state.running.contains_key(&seen.id)) {
            (true, false) => drop(state.running.insert(seen.id.clone(), seen.facts.usd_per_hour.unwrap_or_default())),
            (false, true) => drop(state.running.remove(&seen.id)),
            _ => return,
        }
        state.pay_until(at_ms);
        // Summed up anew: adding and subtracting would leave a rest behind.
        let sum = rounded(state.running.values().fold(0.0, |sum, price| sum + price));
        state.cost_now = sum;
        state.cost_peak = state.cost_peak.max(sum);
        state.cost.push(at_ms, sum);
    }

    /// A request on either wire.
    pub fn call(&self, call: &Call) {
        match call.wire {
            Wire::Kube => {
                if let Some(pod) = call.evicted_pod() {
                    self.state().eviction(call, pod);
                }
            }
            Wire::Aws => {
                if let Some(told) = story::aws_write(call) {
                    let mut state = self.state();
                    let at_ms = state.offset_ms(call.at);
                    state.calls.push(CloudCall { at_ms, ..told });
                }
            }
        }
    }

    /// The chronicle so far.
    pub fn finish(&self) -> Chronicle {
        let mut state = self.state();
        state.end_step();
        let ended_ms = state.now_ms();
        state.pay_until(ended_ms);
        let mut left_out = BTreeMap::new();
        let pods = state.pods.finish("pods", &mut left_out);
        let node_claims = state.node_claims.finish("node_claims", &mut left_out);
        let nodes = state.nodes.finish("nodes", &mut left_out);
        let instances = state.instances.finish("instances", &mut left_out);
        let mut evictions = state.evictions.clone();
        state.evictions_asked.values().for_each(|asked| evictions.push(asked.clone()));
        let mut in_order: Vec<&Event> = state.events.values().collect();
        in_order.sort_by_key(|event| event.at_ms);
        let mut events = Ends::new(ENTRIES);
        in_order.into_iter().for_each(|event| events.push(event.clone()));
        let counted = [
            ("evictions", evictions.lost()),
            ("calls", state.calls.lost()),
            ("events", events.lost() + state.events_lost),
            ("cost.steps", state.cost.lost()),
        ];
        left_out.extend(counted.into_iter().filter(|(_, count)| *count > 0).map(|(list, n)| (list.to_owned(), n)));
        let mut evictions: Vec<Eviction> = evictions.iter().cloned().collect();
        evictions.sort_by(|a, b| (a.asked_ms, &a.pod).cmp(&(b.asked_ms, &b.pod)));
        let step = |&(at_ms, usd_per_hour): &(u64, f64)| CostStep { at_ms, usd_per_hour };
        Chronicle {
            began_at: state.began_at,
            ended_ms,
            steps: state.steps.clone(),
            pods,
            node_claims,
            nodes,
            instances,
            evictions,
            calls: state.calls.iter().cloned().collect(),
            events: events.iter().cloned().collect(),
            cost: Cost {
                steps: state.cost.points().iter().map(step).collect(),
                peak_usd_per_hour: state.cost_peak,
                total_usd: rounded(state.cost_total),
            },
            left_out,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl State {
    fn now_ms(&self) -> u64 {
        self.clock.as_ref().map_or(0, |clock| self.offset_ms(clock.now()))
    }

    fn offset_ms(&self, at: Timestamp) -> u64 {
        at.duration_since(self.began_at).as_millis().try_into().unwrap_or_default()
    }

    fn end_step(&mut self) {
        let now_ms = self.now_ms();
        if let Some(step) = self.steps.last_mut().filter(|_| self.is_in_step) {
            step.ended_ms = now_ms;
        }
        self.is_in_step = false;
    }

    fn pay_until(&mut self, at_ms: u64) {
        self.cost_total += self.cost_now * at_ms.saturating_sub(self.cost_since_ms) as f64 / MS_PER_HOUR;
        self.cost_since_ms = self.cost_since_ms.max(at_ms);
    }

    fn eviction(&mut self, call: &Call, pod: String) {
        let asked_ms = self.offset_ms(call.at);
        let granted = (200..300).contains(&call.status);
        // Whoever asks again for a pod that is on its way out already gets the same answer.
        if self.evicted.contains(&pod) || (!granted && call.status != 429) {
            return;
        }
        let new =
            || Eviction { pod: pod.clone(), caller: call.caller.clone(), asked_ms, refusals: 0, evicted_ms: None };
        if granted {
            let asked = self.evictions_asked.remove(&pod).unwrap_or_else(new);
            self.evictions.push(Eviction { evicted_ms: Some(asked_ms), ..asked });
            self.evicted.insert(pod);
        } else if let Some(asked) = self.evictions_asked.get_mut(&pod) {
            asked.refusals += 1;
        } else if self.evictions_asked.len() < EVICTIONS_FOLLOWED {
            self.evictions_asked.insert(pod.clone(), Eviction { refusals: 1, ..new() });
        }
    }
}

/// To a millionth of a dollar: what sums of floating-point prices leave beyond it is noise.
fn rounded(usd: f64) -> f64 {
    (usd * 1e6).round() / 1e6
}

/// The objects of a call, as many as are kept.
pub(crate) fn call_objects(objects: impl Iterator<Item = String>) -> Vec<String> {
    let mut kept: Vec<String> = Vec::new();
    for object in objects {
        if kept.len() < CALL_OBJECTS && !kept.contains(&object) {
            kept.push(object);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn chronicler() -> Chronicler {
        let chronicler = Chronicler::default();
        chronicler.begin(Clock::virtual_from(at(0)));
        chronicler
    }

    fn instance(id: &str, phase: InstancePhase, since: i64, price: f64) -> SeenInstance {
        let facts = InstanceFacts { usd_per_hour: Some(price), ..InstanceFacts::default() };
        SeenInstance { id: id.into(), phase, since: at(since), node_pool: Some("default".into()), facts }
    }

    #[tokio::test(start_paused = true)]
    async fn the_cost_is_that_of_what_runs_from_running_to_shutting_down() {
        use InstancePhase::{Notice, Pending, Running, ShuttingDown};
        let chronicler = chronicler();
        for (id, phase, since, price) in [
            ("i-1", Pending, 0, 0.36),
            ("i-1", Running, 10, 0.36),
            ("i-2", Running, 20, 0.72),
            ("i-1", Notice, 30, 0.99),
            ("i-1", ShuttingDown, 40, 0.99),
        ] {
            chronicler.instance(&instance(id, phase, since, price));
        }
        tokio::time::advance(std::time::Duration::from_secs(60)).await;
        let cost = chronicler.finish().cost;
        let steps: Vec<(u64, f64)> = cost.steps.iter().map(|step| (step.at_ms, step.usd_per_hour)).collect();
        assert_eq!(steps, [(10_000, 0.36), (20_000, 1.08), (40_000, 0.72)]);
        assert_eq!(cost.peak_usd_per_hour, 1.08);
        // 30 s at 36 cents an hour and 40 s at 72.
        assert_eq!(cost.total_usd, 0.011);
    }

    fn eviction(status: u16, seconds: i64) -> Call {
        Call {
            at: at(seconds),
            wire: Wire::Kube,
            caller: "karpenter".into(),
            name: "create pods/eviction".into(),
            request: json!({"path": "/api/v1/namespaces/default/pods/web-1/eviction"}),
            status,
            response: Value::Null,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_eviction_that_is_refused_twice_and_then_granted_is_one_entry() {
        let chronicler = chronicler();
        for (status, seconds) in [(429, 1), (429, 6), (201, 16), (201, 17)] {
            chronicler.call(&eviction(status, seconds));
        }
        let wanted = Eviction {
            pod: "default/web-1".into(),
            caller: "karpenter".into(),
            asked_ms: 1_000,
            refusals: 2,
            evicted_ms: Some(16_000),
        };
        assert_eq!(chronicler.finish().evictions, [wanted]);
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_change_something_are_kept_with_their_outcome_and_others_are_not() {
        let chronicler = chronicler();
        let call = |name: &str, request: Value, response: &str| Call {
            at: at(2),
            wire: Wire::Aws,
            caller: "sdk/1.0 lang/rust".into(),
            name: name.into(),
            request,
            status: 200,
            response: Value::String(response.into()),
        };
        let fleet = "<errorSet><item><errorCode>InsufficientInstanceCapacity</errorCode></item><item><errorCode>\
                     InsufficientInstanceCapacity</errorCode></item></errorSet><fleetInstanceSet><item><instanceIds>\
                     <item>i-1</item></instanceIds></item></fleetInstanceSet>";
        chronicler.call(&call("ec2:DescribeInstances", json!({}), "<instanceId>i-1</instanceId>"));
        chronicler.call(&call("ec2:CreateFleet", json!({"DryRun": "true"}), ""));
        chronicler.call(&call("sqs:DeleteMessage", json!({}), ""));
        chronicler.call(&call("ec2:CreateFleet", json!({"Type": "instant"}), fleet));
        chronicler.call(&call(
            "ec2:TerminateInstances",
            json!({"InstanceId.1": "i-1"}),
            "<instanceId>i-1</instanceId>",
        ));
        let told: Vec<(String, Vec<String>, BTreeMap<String, u64>)> =
            chronicler.finish().calls.into_iter().map(|call| (call.action, call.objects, call.errors)).collect();
        let errors = BTreeMap::from([("InsufficientInstanceCapacity".to_owned(), 2)]);
        assert_eq!(
            told,
            [
                ("ec2:CreateFleet".into(), vec!["i-1".into()], errors),
                ("ec2:TerminateInstances".into(), vec!["i-1".into()], BTreeMap::new()),
            ]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_that_repeats_is_one_entry_and_those_of_others_are_none() {
        let chronicler = chronicler();
        let event = |component: &str, count: u64| {
            json!({
                "type": "Warning", "reason": "FailedScheduling", "message": "no", "count": count,
                "involvedObject": {"kind": "Pod", "namespace": "default", "name": "a"},
                "reportingComponent": component,
            })
        };
        chronicler.event(Sighting::Added, &event("karpenter", 1));
        chronicler.event(Sighting::Added, &event("default-scheduler", 1));
        tokio::time::advance(std::time::Duration::from_secs(7)).await;
        chronicler.event(Sighting::Modified, &event("karpenter", 2));
        let events = chronicler.finish().events;
        assert_eq!(events.len(), 1);
        assert_eq!((events[0].at_ms, events[0].last_ms, events[0].count), (0, 7_000, 2));
        assert_eq!(events[0].object, "Pod/default/a");
    }

    #[tokio::test(start_paused = true)]
    async fn whatever_repeats_for_a_month_stays_small() {
        let chronicler = chronicler();
        let event = |number: u64| {
            json!({
                "type": "Normal", "reason": "R", "message": number.to_string(), "reportingComponent": "karpenter",
                "involvedObject": {"kind": "Node", "name": "n"},
            })
        };
        for number in 0..10_000_u32 {
            let since = i64::from(number) * 260;
            chronicler.event(Sighting::Added, &event(number.into()));
            let phase = if number % 2 == 0 { InstancePhase::Running } else { InstancePhase::Stopped };
            chronicler.instance(&instance("i-1", phase, since, 0.1));
        }
        let chronicle = chronicler.finish();
        let size = serde_json::to_string(&chronicle).unwrap().len();
        assert!(size < 100_000, "{size}");
        let left_out: Vec<&str> = chronicle.left_out.keys().map(String::as_str).collect();
        assert_eq!(left_out, ["cost.steps", "events", "instances.lanes.phases"]);
        assert_eq!(chronicle.events.len() as u64 + chronicle.left_out["events"], 10_000);
    }
}
