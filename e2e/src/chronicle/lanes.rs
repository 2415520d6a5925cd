//! Follows the objects of one kind through their phases and keeps, of each group, the lives of those that came first and
//! last, and the numbers of all.

use super::bounded::{Ends, Series};
use super::{Count, Entered, GROUP_LANES, GROUPS, LANE_PHASES, LANES, Lane, Lanes, POINTS, Phase, Stage};
use std::collections::{BTreeMap, VecDeque};

/// Groups that are followed. Four times as many as are counted in the end: which of them grow is not known before.
const GROUPS_FOLLOWED: usize = 4 * GROUPS;

/// One kind of object.
#[derive(Debug)]
pub(super) struct Tracker<F, P> {
    seen: u64,
    /// Those that are not gone, by an id that is never used twice.
    present: BTreeMap<String, Present<P>>,
    groups: BTreeMap<String, Group<P>>,
    /// The lives that are kept, in the order of appearance.
    lanes: BTreeMap<u64, Life<F, P>>,
}

#[derive(Debug)]
struct Present<P> {
    number: u64,
    group: String,
    phase: P,
}

#[derive(Debug)]
struct Group<P> {
    members: u64,
    first: Vec<u64>,
    last: VecDeque<u64>,
    now: BTreeMap<P, u64>,
    counts: Series<BTreeMap<P, u64>>,
}

#[derive(Debug)]
struct Life<F, P> {
    name: String,
    group: String,
    facts: F,
    phases: Ends<Entered<P>>,
}

impl<F, P> Default for Tracker<F, P> {
    fn default() -> Self {
        Self { seen: 0, present: BTreeMap::new(), groups: BTreeMap::new(), lanes: BTreeMap::new() }
    }
}

impl<F: Default + Clone, P: Phase> Tracker<F, P> {
    /// An object is in a phase; `learn` writes down what is known of it. One that is gone is not seen again.
    pub(super) fn saw(
        &mut self,
        at_ms: u64,
        id: &str,
        (name, group): (&str, &str),
        phase: P,
        learn: impl FnOnce(&mut F),
    ) {
        let before = self.present.get(id).map(|present| (present.number, present.phase));
        // Whoever begins to watch late may first hear of an object by its end.
        let number = match before {
            Some((number, _)) => number,
            None if phase.stage() == Stage::Gone => return,
            None => self.appeared(id, name, group, phase),
        };
        let entered = before.is_none_or(|(_, last)| last != phase);
        if let Some(life) = self.lanes.get_mut(&number) {
            learn(&mut life.facts);
            if entered {
                life.phases.push(Entered { at_ms, phase });
            }
        }
        if entered {
            self.count(at_ms, id, before.map(|(_, phase)| phase), phase);
        }
    }

    fn appeared(&mut self, id: &str, name: &str, group: &str, phase: P) -> u64 {
        let number = self.seen;
        self.seen += 1;
        self.present.insert(id.to_owned(), Present { number, group: group.to_owned(), phase });
        if !self.groups.contains_key(group) && self.groups.len() == GROUPS_FOLLOWED {
            return number;
        }
        let of_group = self.groups.entry(group.to_owned()).or_insert_with(|| Group {
            members: 0,
            first: Vec::new(),
            last: VecDeque::new(),
            now: BTreeMap::new(),
            counts: Series::new(POINTS),
        });
        of_group.members += 1;
        if of_group.first.len() < GROUP_LANES / 2 {
            of_group.first.push(number);
        } else {
            of_group.last.push_back(number);
            if of_group.last.len() > GROUP_LANES / 2 {
                of_group.last.pop_front().and_then(|oldest| self.lanes.remove(&oldest));
            }
        }
        let life = Life {
            name: name.to_owned(),
            group: group.to_owned(),
            facts: F::default(),
            phases: Ends::new(LANE_PHASES),
        };
        self.lanes.insert(number, life);
        number
    }

    fn count(&mut self, at_ms: u64, id: &str, before: Option<P>, phase: P) {
        let Some(present) = self.present.get_mut(id) else { return };
        present.phase = phase;
        if let Some(group) = self.groups.get_mut(&present.group) {
            if let Some(count) = before.and_then(|before| group.now.get_mut(&before)) {
                *count -= 1;
            }
            if phase.stage() != Stage::Gone {
                *group.now.entry(phase).or_default() += 1;
            }
            group.now.retain(|_, count| *count > 0);
            group.counts.push(at_ms, group.now.clone());
        }
        if phase.stage() == Stage::Gone {
            self.present.remove(id);
        }
    }

    /// What the kept lives with this name know.
    pub(super) fn facts_mut<'a>(&'a mut self, name: &'a str) -> impl Iterator<Item = &'a mut F> {
        self.lanes.values_mut().filter(move |life| life.name == name).map(|life| &mut life.facts)
    }

    /// Everything so far. What was left out is added to `left_out` under the kind's path.
    pub(super) fn finish(&self, path: &str, left_out: &mut BTreeMap<String, u64>) -> Lanes<F, P> {
        let lane = |life: &Life<F, P>| Lane {
            name: life.name.clone(),
            group: life.group.clone(),
            facts: life.facts.clone(),
            phases: life.phases.iter().cloned().collect(),
        };
        let kept: Vec<&Life<F, P>> = self.lanes.values().take(LANES).collect();
        let crowded: Vec<(&String, &Group<P>)> =
            self.groups.iter().filter(|(_, group)| group.members > GROUP_LANES as u64).collect();
        let counts = crowded.iter().take(GROUPS).map(|(name, group)| {
            let point = |(at_ms, phases): &(u64, BTreeMap<P, u64>)| Count { at_ms: *at_ms, phases: phases.clone() };
            ((*name).clone(), group.counts.points().iter().map(point).collect())
        });
        let lost_points = crowded.iter().take(GROUPS).map(|(_, group)| group.counts.lost()).sum();
        let lost_groups = crowded.len().saturating_sub(GROUPS) as u64;
        let mut tell = |list: &str, count: u64| {
            if count > 0 {
                left_out.insert(format!("{path}.{list}"), count);
            }
        };
        tell("lanes", self.seen - kept.len() as u64);
        tell("lanes.phases", kept.iter().map(|life| life.phases.lost()).sum());
        tell("counts", lost_groups);
        tell("counts.points", lost_points);
        Lanes { seen: self.seen, counts: counts.collect(), lanes: kept.into_iter().map(lane).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{PodFacts, PodPhase};
    use super::*;
    use PodPhase::{Bound, Gone, Pending, Running};

    type Pods = Tracker<PodFacts, PodPhase>;

    fn saw(pods: &mut Pods, at_ms: u64, name: &str, phase: PodPhase) {
        pods.saw(at_ms, name, (name, "Deployment web"), phase, |facts| facts.node = Some("n".into()));
    }

    #[test]
    fn a_life_is_kept_with_the_begin_of_each_phase() {
        let mut pods = Pods::default();
        [(0, Pending), (5, Pending), (7, Bound), (9, Running), (20, Gone), (21, Gone)]
            .into_iter()
            .for_each(|(at, phase)| saw(&mut pods, at, "a", phase));
        let mut left_out = BTreeMap::new();
        let all = pods.finish("pods", &mut left_out);
        let phases: Vec<(u64, PodPhase)> = all.lanes[0].phases.iter().map(|e| (e.at_ms, e.phase)).collect();
        assert_eq!(phases, [(0, Pending), (7, Bound), (9, Running), (20, Gone)]);
        assert_eq!((all.seen, all.counts.len(), left_out.len()), (1, 0, 0));
        assert_eq!(all.lanes[0].facts.node.as_deref(), Some("n"));
    }

    #[test]
    fn a_thousand_pods_leave_the_lives_of_the_first_and_last_and_the_numbers_of_all() {
        let mut pods = Pods::default();
        for number in 0..1000 {
            saw(&mut pods, number, &format!("web-{number:04}"), Pending);
        }
        for number in 0..1000 {
            saw(&mut pods, 5000, &format!("web-{number:04}"), Running);
        }
        let mut left_out = BTreeMap::new();
        let all = pods.finish("pods", &mut left_out);
        assert_eq!((all.seen, all.lanes.len()), (1000, GROUP_LANES));
        assert_eq!((all.lanes[0].name.as_str(), all.lanes[23].name.as_str()), ("web-0000", "web-0999"));
        assert_eq!(left_out["pods.lanes"], 1000 - GROUP_LANES as u64);
        let counts = &all.counts["Deployment web"];
        assert!(counts.len() <= POINTS && left_out["pods.counts.points"] > 0);
        assert_eq!(counts.last().unwrap().phases, BTreeMap::from([(Running, 1000)]));
        // Whatever was thinned, no point tells of more pods than there were by then.
        assert!(counts.iter().all(|count| count.phases.values().sum::<u64>() <= count.at_ms + 1));
    }

    #[test]
    fn many_groups_are_bounded_and_told() {
        let mut pods = Pods::default();
        for number in 0..300_u64 {
            let name = format!("job-{number:03}");
            pods.saw(number, &name, (&name, &name), Pending, |_| {});
        }
        let mut left_out = BTreeMap::new();
        let all = pods.finish("pods", &mut left_out);
        assert_eq!((all.seen, all.lanes.len() as u64), (300, 300 - left_out["pods.lanes"]));
        assert!(all.lanes.len() <= LANES);
    }
}
