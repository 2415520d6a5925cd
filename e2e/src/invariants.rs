//! Rules that hold in every scenario, whatever it is about (DESIGN §7). A backend shows the state after changes; each rule
//! is a function over what was seen, so that a test can show it a broken world.

use crate::recorder::PodRemoval;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

/// How long an instance of ours may run without a NodeClaim: garbage collection looks every two minutes at instances older
/// than thirty seconds (aws §5.2), and a crash right after a launch must be covered by it.
const UNCLAIMED_LIMIT: SignedDuration = SignedDuration::from_secs(210);

/// What EC2 itself sets on every instance of a fleet.
const FLEET_TAG: &str = "aws:ec2:fleet-id";

/// From a spot notice to the reclaim.
const NOTICE: SignedDuration = SignedDuration::from_secs(120);
/// How soon after a notice the drain must have begun. Messages take a second or two; the rest is for a busy controller.
const HEEDED_WITHIN: SignedDuration = SignedDuration::from_secs(30);

/// Instances of one NodePool that die young within half an hour: two may be bad luck, a third is a loop.
const OSCILLATION_LIMIT: usize = 3;
const OSCILLATION_WINDOW: SignedDuration = SignedDuration::from_mins(30);
/// What dying young is: shorter than a boot and the wait of the features' NodePool together, and than a boot and the two
/// minutes of a spot notice.
const YOUNG: SignedDuration = SignedDuration::from_secs(75);

/// The state of the world at one instant, as far as the rules ask.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// When.
    pub now: Timestamp,
    /// The name of our cluster.
    pub cluster: String,
    /// The NodeClaims.
    pub claims: Vec<Claim>,
    /// The NodePools.
    pub pools: Vec<Pool>,
    /// The instances, those that died included.
    pub instances: Vec<Instance>,
    /// The subnets each EC2NodeClass has selected.
    pub selected_subnets: BTreeMap<String, BTreeSet<String>>,
    /// Pods that ask not to be disrupted, by namespace and name.
    pub protected_pods: BTreeSet<String>,
    /// Pods that the controller removed so far.
    pub removals: Vec<PodRemoval>,
    /// Instances that the controller asked EC2 to terminate so far.
    pub terminations: Vec<String>,
}

/// A NodeClaim.
#[derive(Clone, Debug, Default)]
pub struct Claim {
    /// Its NodePool.
    pub pool: String,
    /// Its instance's id, empty before the launch.
    pub instance: String,
    /// Its CPUs, in thousandths.
    pub cpu_m: i64,
    /// Whether it is on its way out.
    pub deleting: bool,
    /// Whether EC2 was asked to end its instance already: it counts against no budget any more (core §7.4).
    pub instance_terminating: bool,
    /// Whether it goes because of a voluntary disruption.
    pub disrupted: bool,
    /// Whether its deletion has a deadline that overrides budgets.
    pub has_deadline: bool,
}

/// A NodePool.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// Its CPU limit, in thousandths.
    pub cpu_limit_m: Option<i64>,
    /// How many of its nodes may be disrupted at a time: its unscheduled budgets that name no reasons, of which the
    /// smallest counts.
    pub budgets: Vec<Budget>,
}

/// How many nodes may be disrupted at a time.
#[derive(Clone, Copy, Debug)]
pub enum Budget {
    /// So many.
    Nodes(usize),
    /// So many per hundred, rounded up.
    Percent(usize),
}

/// An instance.
#[derive(Clone, Debug, Default)]
pub struct Instance {
    /// Its id.
    pub id: String,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
    /// Whether it is pending or running.
    pub live: bool,
    /// Where it runs.
    pub subnet: String,
    /// When it was launched.
    pub launched_at: Timestamp,
    /// When EC2 will take it back, once a notice has said so.
    pub reclaim_at: Option<Timestamp>,
}

impl Instance {
    fn tag(&self, key: &str) -> Option<&str> {
        self.tags.get(key).map(String::as_str)
    }

    fn is_ours(&self, cluster: &str) -> bool {
        self.tag("eks:eks-cluster-name") == Some(cluster) && self.tag("karpenter.sh/nodepool").is_some()
    }
}

/// What is remembered from one look to the next.
#[derive(Debug, Default)]
struct History {
    deaths: BTreeMap<String, (String, Timestamp)>,
    checked_removals: usize,
    protected_pods: BTreeSet<String>,
    checked_launches: BTreeSet<String>,
}

/// The rules that were broken in a scenario, shared between whoever looks and whoever asks.
#[derive(Clone, Debug, Default)]
pub struct Invariants(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    history: History,
    broken: Vec<String>,
    refusal: Option<String>,
}

impl Invariants {
    /// Looks at the world and remembers every broken rule.
    pub fn look(&self, seen: &Seen) {
        let mut state = self.state();
        let found = broken_rules(seen, &mut state.history);
        for rule in found {
            if !state.broken.contains(&rule) {
                state.broken.push(rule);
            }
        }
    }

    /// The controller was refused something that it has to be allowed.
    pub fn refused(&self, caller: &str, answer: &str) {
        let rule = format!("everything that the controller asks for is allowed to it: {caller} was answered: {answer}");
        self.state().refusal.get_or_insert(rule);
    }

    /// What the controller was refused first. Who waits for what it was about to do waits in vain.
    pub fn refusal(&self) -> Option<String> {
        self.state().refusal.clone()
    }

    /// The rule that was broken first, if any.
    pub fn broken(&self) -> Option<String> {
        let state = self.state();
        state.refusal.clone().or_else(|| state.broken.first().cloned())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

fn broken_rules(seen: &Seen, history: &mut History) -> Vec<String> {
    let mut broken = Vec::new();
    broken.extend(unclaimed_instances(seen));
    broken.extend(shared_claims(seen));
    broken.extend(limits(seen));
    broken.extend(budgets(seen));
    broken.extend(foreign_terminations(seen));
    broken.extend(notices_not_heeded(seen));
    broken.extend(launches_outside_selected_subnets(seen, history));
    broken.extend(forbidden_removals(seen, history));
    broken.extend(oscillation(seen, history));
    broken
}

fn ours(seen: &Seen) -> impl Iterator<Item = &Instance> {
    seen.instances.iter().filter(|instance| instance.is_ours(&seen.cluster))
}

fn unclaimed_instances(seen: &Seen) -> impl Iterator<Item = String> {
    let claimed: BTreeSet<&str> = seen.claims.iter().map(|claim| claim.instance.as_str()).collect();
    ours(seen)
        .filter(move |i| {
            i.live && !claimed.contains(i.id.as_str()) && seen.now.duration_since(i.launched_at) > UNCLAIMED_LIMIT
        })
        .map(|i| {
            format!("no instance without a NodeClaim: {} runs since {} and no NodeClaim knows it", i.id, i.launched_at)
        })
}

fn shared_claims(seen: &Seen) -> Vec<String> {
    let mut by_claim: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for instance in ours(seen).filter(|instance| instance.live) {
        if let Some(claim) = instance.tag("karpenter.sh/nodeclaim") {
            by_claim.entry(claim).or_default().push(&instance.id);
        }
    }
    let shared = by_claim.into_iter().filter(|(_, instances)| instances.len() > 1);
    shared
        .map(|(claim, instances)| format!("one instance per NodeClaim: {claim} has {}", instances.join(" and ")))
        .collect()
}

fn limits(seen: &Seen) -> impl Iterator<Item = String> {
    seen.pools.iter().filter_map(|pool| {
        let limit = pool.cpu_limit_m?;
        // A node that goes leaves its share to the one that replaces it (core §3.5, §4.5).
        let staying = seen.claims.iter().filter(|claim| claim.pool == pool.name && !claim.deleting);
        let used: i64 = staying.map(|claim| claim.cpu_m).sum();
        (used > limit)
            .then(|| format!("limits are respected: NodePool {} has {used}m CPU and a limit of {limit}m", pool.name))
    })
}

fn budgets(seen: &Seen) -> impl Iterator<Item = String> {
    seen.pools.iter().filter_map(|pool| {
        let of_pool = || seen.claims.iter().filter(|claim| claim.pool == pool.name && !claim.instance_terminating);
        let allows = |budget: &Budget| match *budget {
            Budget::Nodes(count) => count,
            Budget::Percent(percent) => (of_pool().count() * percent).div_ceil(100),
        };
        let allowed = pool.budgets.iter().map(allows).min()?;
        let disrupted = of_pool().filter(|claim| claim.disrupted && claim.deleting).count();
        (disrupted > allowed).then(|| {
            format!("budgets are respected: {disrupted} nodes of NodePool {} go at once, {allowed} may", pool.name)
        })
    })
}

fn notices_not_heeded(seen: &Seen) -> impl Iterator<Item = String> {
    let late = |reclaim_at: &Timestamp| reclaim_at.duration_since(seen.now) < NOTICE - HEEDED_WITHIN;
    ours(seen).filter(|instance| instance.live).filter_map(move |instance| {
        let reclaim_at = instance.reclaim_at.filter(late)?;
        let stays = |claim: &Claim| claim.instance == instance.id && !claim.deleting;
        seen.claims.iter().any(stays).then(|| {
            format!(
                "interrupted nodes are drained: {} is taken back at {reclaim_at} and its NodeClaim stays",
                instance.id
            )
        })
    })
}

fn foreign_terminations(seen: &Seen) -> impl Iterator<Item = String> {
    let foreign =
        |id: &&String| seen.instances.iter().any(|instance| instance.id == **id && !instance.is_ours(&seen.cluster));
    seen.terminations.iter().filter(foreign).map(|id| format!("nothing is terminated that is not ours: {id}"))
}

fn launches_outside_selected_subnets(seen: &Seen, history: &mut History) -> Vec<String> {
    let mut broken = Vec::new();
    for instance in ours(seen) {
        let Some(class) = instance.tag("karpenter.k8s.aws/ec2nodeclass") else { continue };
        // A person may launch what looks like one of ours wherever there is a subnet; the controller asks for fleets.
        if instance.tag(FLEET_TAG).is_none() {
            continue;
        }
        // Once, when first seen: a selection may change later without making the launch wrong.
        if !history.checked_launches.insert(instance.id.clone()) {
            continue;
        }
        // A class that is not known selects nothing that could be broken.
        let Some(selected) = seen.selected_subnets.get(class) else { continue };
        if !selected.contains(&instance.subnet) {
            broken.push(format!(
                "no launch outside selected subnets: {} runs in {}, EC2NodeClass {class} selects {selected:?}",
                instance.id, instance.subnet
            ));
        }
    }
    broken
}

fn forbidden_removals(seen: &Seen, history: &mut History) -> Vec<String> {
    let fresh = seen.removals.get(history.checked_removals..).unwrap_or_default();
    history.checked_removals = seen.removals.len();
    let deadline = seen.claims.iter().any(|claim| claim.has_deadline);
    let mut broken = Vec::new();
    for removal in fresh.iter().filter(|_| !deadline) {
        if !removal.eviction {
            broken.push(format!(
                "pods go by eviction: {} was deleted, which passes over its PodDisruptionBudgets",
                removal.pod
            ));
        } else if seen.protected_pods.contains(&removal.pod) || history.protected_pods.contains(&removal.pod) {
            broken.push(format!("do-not-disrupt is respected: {} was evicted", removal.pod));
        }
    }
    // A pod without a grace period is gone by the next look; what it asked for is known from the last one.
    history.protected_pods.clone_from(&seen.protected_pods);
    broken
}

fn oscillation(seen: &Seen, history: &mut History) -> Vec<String> {
    for instance in ours(seen).filter(|instance| !instance.live) {
        let died_young = seen.now.duration_since(instance.launched_at) < YOUNG;
        let pool = instance.tag("karpenter.sh/nodepool").unwrap_or_default();
        history.deaths.entry(instance.id.clone()).or_insert_with(|| {
            let at = if died_young { seen.now } else { Timestamp::MIN };
            (pool.to_owned(), at)
        });
    }
    let recent = |at: Timestamp| at != Timestamp::MIN && seen.now.duration_since(at) < OSCILLATION_WINDOW;
    let mut by_pool: BTreeMap<&str, usize> = BTreeMap::new();
    for (pool, _) in history.deaths.values().filter(|(_, at)| recent(*at)) {
        *by_pool.entry(pool).or_default() += 1;
    }
    let looping = by_pool.into_iter().filter(|(_, count)| *count >= OSCILLATION_LIMIT);
    looping
        .map(|(pool, count)| {
            format!("no create/remove loop: {count} instances of NodePool {pool} died within minutes of their launch")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn instance(id: &str) -> Instance {
        let tags = [
            ("eks:eks-cluster-name", "demo"),
            ("karpenter.sh/nodepool", "default"),
            ("karpenter.k8s.aws/ec2nodeclass", "default"),
            (FLEET_TAG, "fleet-1"),
        ];
        Instance {
            id: id.into(),
            tags: tags.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            live: true,
            subnet: "subnet-1".into(),
            launched_at: at(0),
            reclaim_at: None,
        }
    }

    fn claim(instance: &str) -> Claim {
        Claim { pool: "default".into(), instance: instance.into(), cpu_m: 8_000, ..Claim::default() }
    }

    /// A world in which every rule holds.
    fn sound() -> Seen {
        Seen {
            now: at(600),
            cluster: "demo".into(),
            claims: vec![claim("i-1")],
            pools: vec![Pool { name: "default".into(), cpu_limit_m: Some(16_000), budgets: vec![Budget::Percent(10)] }],
            instances: vec![instance("i-1")],
            selected_subnets: BTreeMap::from([("default".into(), BTreeSet::from(["subnet-1".into()]))]),
            ..Seen::default()
        }
    }

    fn removal(pod: &str, eviction: bool) -> PodRemoval {
        PodRemoval { at: at(0), caller: "karpenter".into(), pod: pod.into(), eviction }
    }

    #[track_caller]
    fn fires(rule: &str, breaking: impl FnOnce(&mut Seen)) {
        assert_eq!(broken_rules(&sound(), &mut History::default()), Vec::<String>::new());
        let mut world = sound();
        breaking(&mut world);
        let broken = broken_rules(&world, &mut History::default());
        assert!(matches!(broken.as_slice(), [only] if only.starts_with(rule)), "{broken:?}");
    }

    #[test]
    fn an_instance_without_a_node_claim_is_seen() {
        fires("no instance without a NodeClaim: i-1", |world| world.claims.clear());
    }

    #[test]
    fn a_fresh_instance_without_a_node_claim_is_given_time() {
        let world = Seen { now: at(100), claims: vec![], ..sound() };
        assert_eq!(broken_rules(&world, &mut History::default()), Vec::<String>::new());
    }

    #[test]
    fn two_instances_of_one_node_claim_are_seen() {
        fires("one instance per NodeClaim", |world| {
            world.instances.push(instance("i-2"));
            world.claims.push(claim("i-2"));
            world
                .instances
                .iter_mut()
                .for_each(|i| drop(i.tags.insert("karpenter.sh/nodeclaim".into(), "default-x".into())));
        });
    }

    #[test]
    fn a_limit_that_is_passed_is_seen() {
        fires("limits are respected", |world| world.claims[0].cpu_m = 16_001);
    }

    #[test]
    fn a_node_that_goes_leaves_its_share_of_the_limit_to_its_successor() {
        let mut world = sound();
        world.instances.push(instance("i-2"));
        world.claims = vec![Claim { deleting: true, ..claim("i-1") }, Claim { cpu_m: 16_000, ..claim("i-2") }];
        assert_eq!(broken_rules(&world, &mut History::default()), Vec::<String>::new());
    }

    #[test]
    fn an_instance_that_ends_counts_against_no_budget() {
        let mut world = sound();
        world.instances.push(instance("i-2"));
        let going = |id| Claim { disrupted: true, deleting: true, ..claim(id) };
        world.claims = vec![Claim { instance_terminating: true, ..going("i-1") }, going("i-2")];
        assert_eq!(broken_rules(&world, &mut History::default()), Vec::<String>::new());
    }

    #[test]
    fn a_budget_that_is_passed_is_seen() {
        fires("budgets are respected", |world| {
            world.instances.push(instance("i-2"));
            world.claims.push(claim("i-2"));
            world.claims.iter_mut().for_each(|claim| (claim.disrupted, claim.deleting) = (true, true));
        });
    }

    #[test]
    fn a_foreign_instance_that_is_terminated_is_seen() {
        fires("nothing is terminated that is not ours", |world| {
            world.instances.push(Instance { tags: BTreeMap::new(), ..instance("i-9") });
            world.terminations.push("i-9".into());
        });
    }

    #[test]
    fn a_notice_that_nobody_heeds_is_seen() {
        fires("interrupted nodes are drained", |world| world.instances[0].reclaim_at = Some(at(600 + 89)));
    }

    #[test]
    fn a_notice_that_has_just_come_or_is_heeded_is_no_fault() {
        let mut world = sound();
        world.instances[0].reclaim_at = Some(at(600 + 119));
        assert_eq!(broken_rules(&world, &mut History::default()), Vec::<String>::new());
        world.instances[0].reclaim_at = Some(at(600 + 10));
        world.claims[0].deleting = true;
        assert_eq!(broken_rules(&world, &mut History::default()), Vec::<String>::new());
    }

    #[test]
    fn a_launch_outside_the_selected_subnets_is_seen() {
        fires("no launch outside selected subnets", |world| world.instances[0].subnet = "subnet-9".into());
    }

    #[test]
    fn a_pod_that_is_deleted_and_not_evicted_is_seen() {
        fires("pods go by eviction", |world| world.removals.push(removal("default/a", false)));
    }

    #[test]
    fn a_protected_pod_that_is_evicted_is_seen() {
        fires("do-not-disrupt is respected", |world| {
            world.protected_pods.insert("default/a".into());
            world.removals.push(removal("default/a", true));
        });
    }

    #[test]
    fn a_protected_pod_that_is_gone_by_the_next_look_is_seen() {
        let mut history = History::default();
        let before = Seen { protected_pods: BTreeSet::from(["default/a".into()]), ..sound() };
        assert_eq!(broken_rules(&before, &mut history), Vec::<String>::new());
        let after = Seen { removals: vec![removal("default/a", true)], ..sound() };
        assert!(broken_rules(&after, &mut history)[0].starts_with("do-not-disrupt is respected"));
    }

    #[test]
    fn a_loop_of_launches_and_terminations_is_seen() {
        fires("no create/remove loop", |world| {
            world.now = at(60);
            world.instances.extend(["i-2", "i-3", "i-4"].map(|id| Instance { live: false, ..instance(id) }));
        });
    }
}
