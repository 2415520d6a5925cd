//! What a pod asks for, from everything it would like down to what it must have (core spec §3.11).
//!
//! Pods that ask for the same are one class: what they ask is worked out once, and where one failed the next fails too until
//! something has changed.

use super::amounts::{Axes, Row};
use super::existing::ExistingNode;
use super::reason::{NodeRule, Refusal, Unschedulable};
use super::sets::{Sets, Split};
use super::template::Template;
use super::topology::{Bounds, Constraint, GroupId, Kind, LabelsId, Rule, Topology};
use super::volumes::{self, Alternatives};
use crate::requirement::Requirement;
use crate::requirements::{AllowUndefined, Clash, Incompatible, Requirements};
use crate::settings::{PreferencePolicy, Settings};
use crate::snapshot::{MatchExpressions, Pod, PodName, Storage};
use crate::taints;
use k8s_openapi::api::core::v1::Toleration;
use std::rc::Rc;

/// Pods that are scheduled alike.
pub(super) struct PodClass<'a> {
    pub(super) pod: &'a Pod,
    pub(super) amounts: Row,
    pub(super) labels: LabelsId,
    /// Groups of pods that must not meet this one because they want it so.
    inverse: Vec<Constraint>,
    /// Groups whose pods this one must not meet: it counts in them for others.
    pub(super) forbids: Vec<GroupId>,
    /// Where its volumes let it run. Empty: anywhere.
    pub(super) volumes: Vec<Split>,
    volumes_clash: bool,
    /// Its claims by the driver that attaches them.
    pub(super) attached: Vec<(String, PodName)>,
    /// What it asks for: all of it, then less and less.
    stages: Vec<Rc<Ask>>,
    wishes: Wishes,
    /// How many pods had been placed when one of the class failed, and why it did.
    pub(super) failure: Option<(usize, Unschedulable)>,
}

/// What is still wished for. Each failure gives up one thing.
#[derive(Clone)]
struct Wishes {
    /// Place of the required node affinity term that counts.
    required: usize,
    /// Place of the heaviest preferred affinity to pods that is kept.
    near: usize,
    /// The same of anti-affinity.
    apart: usize,
    /// The same of preferred node affinity.
    preferred: usize,
    /// Spread constraints that are only wishes, by place.
    spread: Vec<usize>,
    /// Spread constraints in the order that upstream has them in.
    in_order: Vec<usize>,
    tolerates_preferred_taints: bool,
}

/// What one attempt asks for.
pub(super) struct Ask {
    /// Labels asked for.
    pub(super) split: Split,
    /// The same without what is only preferred.
    strict: Split,
    /// Every single expression: together they can say less than each.
    expressions: Vec<Requirement>,
    pub(super) tolerations: Vec<Toleration>,
    pub(super) constraints: Vec<Constraint>,
    /// Why nodes of a template cannot take it whatever else, by template.
    pub(super) refused_by: Vec<Option<Refusal>>,
    /// Nodes that exist whose labels and taints are right, by place.
    pub(super) nodes: Vec<u32>,
}

impl Ask {
    /// What must hold of the pod's own labels for the domains it may use.
    pub(super) fn bounds(&self) -> Bounds<'_> {
        Bounds { strict: self.strict.set, strict_hostname: self.strict.hostname.as_ref() }
    }

    /// Why a node that is not among [`nodes`](Self::nodes) is not.
    pub(super) fn unsuited(&self, node: &ExistingNode<'_>) -> NodeRule {
        if let Err(untolerated) = taints::tolerates(node.taints, &self.tolerations) {
            return NodeRule::Taint { taint: taints::text(&untolerated.0) };
        }
        let unmet = self.expressions.iter().find(|expression| !node.meets(expression));
        unmet.map_or(NodeRule::Volumes, |expression| NodeRule::Labels { wanted: expression.to_string() })
    }
}

/// The parts of a pass that working out a class needs.
pub(super) struct Surroundings<'s, 'a> {
    pub(super) sets: &'s mut Sets,
    pub(super) topology: &'s mut Topology<'a>,
    pub(super) templates: &'s [Template<'a>],
    pub(super) existing: &'s [ExistingNode<'a>],
    pub(super) some_pool_has_preferred_taints: bool,
}

impl<'a> PodClass<'a> {
    pub(super) fn new(
        pod: &'a Pod,
        storage: Option<&Storage>,
        axes: &Axes,
        settings: &Settings,
        sets: &mut Sets,
        topology: &mut Topology<'a>,
    ) -> Self {
        let labels = topology.labels_of(pod);
        let forbids = pod.affinity.required_anti.iter().map(|term| topology.inverse_group(pod, term)).collect();
        let (volumes, volumes_clash) =
            match storage.map_or(Alternatives::Any, |storage| volumes::alternatives(pod, storage)) {
                Alternatives::Any => (vec![], false),
                Alternatives::OneOf(places) => (places.into_iter().map(|place| sets.split(place)).collect(), false),
                Alternatives::Nowhere => (vec![], true),
            };
        Self {
            pod,
            amounts: axes.row(&pod.requests),
            labels,
            inverse: Vec::new(),
            forbids,
            volumes,
            volumes_clash,
            attached: storage.map(|storage| volumes::attached(pod, storage)).unwrap_or_default(),
            stages: Vec::new(),
            wishes: Wishes::of(pod, settings),
            failure: None,
        }
    }

    /// Takes note of the groups that must not meet it, once all are known.
    pub(super) fn meet_inverse(&mut self, topology: &Topology<'_>) {
        self.inverse = topology.inverse_of(self.labels);
    }

    /// Makes the groups that its first attempt asks about, so that they count from the first placement on.
    pub(super) fn found_groups(&self, around: &mut Surroundings<'_, 'a>) {
        self.constraints(&self.pod.tolerations, around);
    }

    /// What the attempt of that number asks for; `None` when nothing is left to give up.
    pub(super) fn stage(&mut self, number: usize, around: &mut Surroundings<'_, 'a>) -> Option<Rc<Ask>> {
        while self.stages.len() <= number {
            if !self.stages.is_empty() && !self.wishes.relax(self.pod, around.some_pool_has_preferred_taints) {
                return None;
            }
            let ask = self.ask(around);
            self.stages.push(Rc::new(ask));
        }
        Some(Rc::clone(&self.stages[number]))
    }

    fn ask(&self, around: &mut Surroundings<'_, 'a>) -> Ask {
        let pod = self.pod;
        let wishes = &self.wishes;
        let required = pod.required_terms.get(wishes.required);
        let preferred = pod.preferred_terms.get(wishes.preferred).map(|preferred| &preferred.term);
        let strict = around.sets.split(pod.requirements(required, None));
        let split = around.sets.split(pod.requirements(required, preferred));
        let mut tolerations = pod.tolerations.clone();
        if wishes.tolerates_preferred_taints {
            tolerations.push(tolerate_preferred_taints());
        }
        let constraints = self.constraints(&tolerations, around);
        let expressions = expressions(pod, [required, preferred]);
        let mut ask =
            Ask { split, strict, expressions, tolerations, constraints, refused_by: Vec::new(), nodes: Vec::new() };
        let clash = self.contradiction(&ask);
        ask.refused_by = around
            .templates
            .iter()
            .map(|template| match &clash {
                Some(clash) => Some(clash.clone()),
                None => refused_by_template(&ask, template),
            })
            .collect();
        if clash.is_none() {
            let places = self.volumes.iter().map(|split| (around.sets.get(split.set).clone(), split.hostname.clone()));
            let places: Vec<_> = places.collect();
            let suits = |node: &&(u32, &ExistingNode<'_>)| suits(&ask, &places, node.1);
            ask.nodes = (0..).zip(around.existing).filter(|node| suits(&node)).map(|(index, _)| index).collect();
        }
        ask
    }

    /// Constraints about other pods, its own first.
    fn constraints(&self, tolerations: &[Toleration], around: &mut Surroundings<'_, 'a>) -> Vec<Constraint> {
        let (pod, wishes) = (self.pod, &self.wishes);
        let mut constraints = Vec::new();
        for index in &wishes.in_order {
            let constraint = &pod.topology_spread[*index];
            if !constraint.is_required && !wishes.spread.contains(index) {
                continue;
            }
            let group = around.topology.spread_group(around.sets, pod, constraint, tolerations);
            let kind = Kind::Spread { max_skew: constraint.max_skew, min_domains: constraint.min_domains };
            constraints.push((group, kind));
        }
        let affinity = &pod.affinity;
        let near = affinity.required.iter().chain(affinity.preferred.iter().skip(wishes.near).map(|w| &w.term));
        let near = near.map(|term| (term, Rule::Affinity));
        let apart =
            affinity.required_anti.iter().chain(affinity.preferred_anti.iter().skip(wishes.apart).map(|w| &w.term));
        for (term, rule) in near.chain(apart.map(|term| (term, Rule::AntiAffinity))) {
            constraints.push((around.topology.affinity_group(around.sets, pod, term, rule), rule.kind()));
        }
        let own = constraints.into_iter().map(|(group, kind)| Constraint {
            group,
            kind,
            counts_itself: around.topology.counts(group, self.labels),
        });
        own.collect::<Vec<_>>().into_iter().chain(self.inverse.iter().copied()).collect()
    }

    /// Why no node whatever can take the pod. Upstream counts two expressions that exclude each other as "label absent", and
    /// builds a node that the pod can never run on.
    fn contradiction(&self, ask: &Ask) -> Option<Refusal> {
        if self.volumes_clash {
            return Some(Refusal::VolumesApart);
        }
        let mut seen = Requirements::new();
        for expression in &ask.expressions {
            if volumes::clash(seen.get(expression.key()), expression) {
                let allowed = seen.get_or_any(expression.key());
                let clash = Clash::Disjoint { wanted: expression.clone(), allowed };
                return Some(Refusal::Requirements(Incompatible(vec![clash])));
            }
            seen.add(expression.clone());
        }
        None
    }
}

fn expressions(pod: &Pod, terms: [Option<&MatchExpressions>; 2]) -> Vec<Requirement> {
    let selector = pod.node_selector.iter().map(|(key, value)| Requirement::equals(key, value.as_str()));
    selector.chain(terms.into_iter().flatten().flat_map(|term| term.requirements.iter().cloned())).collect()
}

fn refused_by_template(ask: &Ask, template: &Template<'_>) -> Option<Refusal> {
    if let Err(untolerated) = taints::tolerates(template.pool.taints(), &ask.tolerations) {
        return Some(Refusal::Taint(untolerated.0));
    }
    let each = ask.expressions.iter().filter(|e| e.key() != controller_api::labels::HOSTNAME_LABEL);
    let mut clashes = each.filter_map(|expression| {
        let wanted = Requirements::new().with(expression.clone());
        template.requirements.compatible(&wanted, AllowUndefined::WellKnown).err()
    });
    clashes.next().map(Refusal::Requirements)
}

/// Whether labels and taints of the node are right. Each expression is asked by itself of what the node has, and of nothing
/// that other pods of the pass asked for.
fn suits(ask: &Ask, places: &[(Rc<Requirements>, Option<Requirement>)], node: &ExistingNode<'_>) -> bool {
    let meets = |expression: &Requirement| node.meets(expression);
    taints::tolerates(node.taints, &ask.tolerations).is_ok()
        && ask.expressions.iter().all(meets)
        && (places.is_empty() || places.iter().any(|(place, hostname)| place.iter().chain(hostname.iter()).all(meets)))
}

impl Wishes {
    /// Everything the pod would like, unless preferences are ignored.
    fn of(pod: &Pod, settings: &Settings) -> Self {
        let in_order = (0..pod.topology_spread.len()).collect();
        let mut wishes = Self {
            required: 0,
            near: 0,
            apart: 0,
            preferred: 0,
            spread: (0..pod.topology_spread.len()).filter(|i| !pod.topology_spread[*i].is_required).collect(),
            in_order,
            tolerates_preferred_taints: false,
        };
        if settings.preference_policy == PreferencePolicy::Ignore {
            wishes.near = pod.affinity.preferred.len();
            wishes.apart = pod.affinity.preferred_anti.len();
            wishes.preferred = pod.preferred_terms.len();
            wishes.spread.clear();
        }
        wishes
    }

    /// Gives up the next thing; false when nothing is left to give up. The order is upstream's.
    fn relax(&mut self, pod: &Pod, some_pool_has_preferred_taints: bool) -> bool {
        if self.required + 1 < pod.required_terms.len() {
            self.required += 1;
        } else if self.near < pod.affinity.preferred.len() {
            self.near += 1;
        } else if self.apart < pod.affinity.preferred_anti.len() {
            self.apart += 1;
        } else if self.preferred < pod.preferred_terms.len() {
            self.preferred += 1;
        } else if let Some(place) = self.in_order.iter().position(|index| self.spread.contains(index)) {
            // The last of all takes the place of the one given up: upstream's order.
            let given_up = self.in_order.swap_remove(place);
            self.spread.retain(|index| *index != given_up);
        } else if some_pool_has_preferred_taints && !self.tolerates_preferred_taints {
            self.tolerates_preferred_taints = true;
        } else {
            return false;
        }
        true
    }
}

/// Tolerates every taint that is only a preference.
pub(super) fn tolerate_preferred_taints() -> Toleration {
    Toleration {
        operator: Some("Exists".to_owned()),
        effect: Some("PreferNoSchedule".to_owned()),
        ..Toleration::default()
    }
}
