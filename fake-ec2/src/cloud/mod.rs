//! The whole model: a plain struct whose methods take `now`. It knows nothing of HTTP, locks or sleeping.
//!
//! What will happen by itself stands in an agenda; [`Cloud::advance`] carries out what is due, each entry at its own
//! instant, so that it does not matter when somebody looks.

pub(crate) mod allocation;
pub(crate) mod bus;
pub(crate) mod capacity;
pub(crate) mod catalogue;
pub(crate) mod cluster;
pub(crate) mod consistency;
pub(crate) mod facts;
pub(crate) mod filter;
pub(crate) mod fleet;
pub(crate) mod fleet_upkeep;
pub(crate) mod identity;
pub(crate) mod ids;
pub(crate) mod image;
pub(crate) mod instance;
pub(crate) mod instances;
pub(crate) mod key_pair;
pub(crate) mod launch;
pub(crate) mod launch_options;
pub(crate) mod launch_template;
pub(crate) mod lifecycle;
pub(crate) mod members;
pub(crate) mod network;
pub(crate) mod parameter;
pub(crate) mod queue;
pub(crate) mod quota;
pub(crate) mod requirements;
pub(crate) mod reservation;
pub(crate) mod resource;
pub(crate) mod roles;
pub(crate) mod spot_request;
pub(crate) mod stack;
pub(crate) mod tags;
pub(crate) mod throttle;
pub(crate) mod volume;

use crate::config::Config;
use crate::error::ApiError;
use crate::iam::decision::queue_takes_events;
use bus::Bus;
use capacity::Capacity;
use catalogue::Catalogue;
use fleet::Fleets;
use identity::{Cluster, Identity};
use ids::Ids;
use image::Images;
use instance::{Instance, State};
use instances::Instances;
use jiff::{SignedDuration, Timestamp};
use key_pair::KeyPair;
use launch_template::LaunchTemplates;
use network::Network;
use parameter::OwnParameter;
use queue::{Draft, MoveTask, Queue};
use reservation::{CapacityReservation, PlacementGroup};
use serde::{Deserialize, Serialize};
use spot_request::SpotRequest;
use stack::Stack;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use tags::Tags;
use throttle::Buckets;
use volume::FreeVolume;

/// Something that will happen by itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Due {
    /// The instance leaves the state it has been in since then.
    Transition { instance: String, from: State, since: Timestamp },
    /// A spot notice comes true.
    Reclaim { instance: String },
    /// A terminated instance disappears from Describe calls.
    Forget { instance: String },
    /// An image becomes available.
    ImageReady { image: String },
    /// A spot request is looked at.
    Evaluate { request: String },
    /// A spot request that is over disappears from Describe calls.
    ForgetRequest { request: String },
    /// A fleet looks at what it has and what it lacks.
    KeepFleet { fleet: String },
    /// A deleted fleet disappears from Describe calls.
    ForgetFleet { fleet: String },
    /// A capacity reservation may have reached its end.
    ExpireReservation { reservation: String },
    /// An event reaches a queue.
    Deliver { queue: String, body: String, group: Option<String> },
    /// A cluster leaves a passing state.
    Cluster { name: String, from: cluster::ClusterStatus },
    /// A second of a task that empties a dead-letter queue.
    MoveMessages { task: String },
}

/// Answers kept for client tokens. A client repeats a token within seconds; two thousand answers of some kilobytes each
/// reach back much further than that and stay under ten megabytes.
const MAX_TOKENS: usize = 2_000;

/// Events kept to look back at, in bytes: some 5,000 of the usual 600, where a person looks at the last few. Those a
/// client makes up may be large.
const MAX_EVENT_BYTES: usize = 3 << 20;

/// A price in USD per hour, and since when; none where spot was withdrawn.
type PriceChange = (Option<f64>, Timestamp);

/// Changes of price kept of each pool: a change an hour over the ninety days that AWS keeps, rounded down.
const MAX_PRICE_CHANGES: usize = 2_000;

/// An event that was put on the bus.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Emitted {
    /// Counts from 1.
    pub(crate) sequence: u64,
    /// The event, as JSON.
    pub(crate) event: String,
    /// The ARNs it goes to.
    pub(crate) targets: Vec<String>,
}

/// Everything in the account and the region.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Cloud {
    pub(crate) config: Config,
    pub(crate) started_at: Timestamp,
    /// As the configuration says; not saved.
    #[serde(skip)]
    pub(crate) catalogue: Catalogue,
    pub(crate) network: Network,
    /// By name.
    pub(crate) key_pairs: BTreeMap<String, KeyPair>,
    /// Those that no instance has.
    pub(crate) volumes: BTreeMap<String, FreeVolume>,
    /// Which instance has a volume or an interface.
    parts: BTreeMap<String, String>,
    pub(crate) images: Images,
    /// By name.
    pub(crate) parameters: BTreeMap<String, OwnParameter>,
    pub(crate) templates: LaunchTemplates,
    pub(crate) instances: Instances,
    pub(crate) fleets: Fleets,
    pub(crate) spot_requests: BTreeMap<String, SpotRequest>,
    pub(crate) reservations: BTreeMap<String, CapacityReservation>,
    pub(crate) placement_groups: BTreeMap<String, PlacementGroup>,
    pub(crate) capacity: Capacity,
    buckets: Buckets,
    pub(crate) identity: Identity,
    pub(crate) clusters: BTreeMap<String, Cluster>,
    pub(crate) queues: BTreeMap<String, Queue>,
    /// Since when; the names cannot be used again at once.
    pub(crate) deleted_queues: BTreeMap<String, Timestamp>,
    pub(crate) move_tasks: Vec<MoveTask>,
    pub(crate) bus: Bus,
    /// The oldest first, also deleted ones.
    pub(crate) stacks: Vec<Stack>,
    /// The newest last.
    pub(crate) events: VecDeque<Emitted>,
    event_bytes: usize,
    event_count: u64,
    pub(crate) ids: Ids,
    /// Spot prices that differ from the catalogue, with the instant of each change, the latest last; none where spot was
    /// withdrawn.
    #[serde(with = "crate::state::pairs")]
    spot_prices: BTreeMap<(String, String), Vec<PriceChange>>,
    on_demand_prices: BTreeMap<String, f64>,
    #[serde(with = "crate::state::pairs")]
    agenda: BTreeMap<(Timestamp, u64), Due>,
    agenda_count: u64,
    /// Tags as Describe calls still see them, and until when.
    pub(super) seen_tags: BTreeMap<String, (Tags, Timestamp)>,
    #[serde(with = "crate::state::pairs")]
    tokens: BTreeMap<(String, String), (String, String)>,
    token_order: VecDeque<(String, String)>,
    /// Counts changes that someone may wait for: messages, instances, the agenda.
    pub(crate) revision: u64,
    /// Counts changes of instances.
    pub(crate) instance_revision: u64,
}

impl Cloud {
    pub(crate) fn new(config: Config, now: Timestamp) -> Self {
        Self {
            catalogue: Catalogue::new(&config.region, &config.families),
            images: Images::published(config.seed, &config.kubernetes_version),
            parameters: BTreeMap::new(),
            ids: Ids::new(config.seed),
            config,
            started_at: now,
            network: Network::default(),
            key_pairs: BTreeMap::new(),
            volumes: BTreeMap::new(),
            parts: BTreeMap::new(),
            templates: LaunchTemplates::default(),
            instances: Instances::default(),
            fleets: Fleets::default(),
            spot_requests: BTreeMap::new(),
            reservations: BTreeMap::new(),
            placement_groups: BTreeMap::new(),
            capacity: Capacity::default(),
            buckets: Buckets::default(),
            identity: Identity::new(now),
            clusters: BTreeMap::new(),
            queues: BTreeMap::new(),
            deleted_queues: BTreeMap::new(),
            move_tasks: Vec::new(),
            bus: Bus::default(),
            stacks: Vec::new(),
            events: VecDeque::new(),
            event_bytes: 0,
            event_count: 0,
            spot_prices: BTreeMap::new(),
            on_demand_prices: BTreeMap::new(),
            agenda: BTreeMap::new(),
            agenda_count: 0,
            seen_tags: BTreeMap::new(),
            tokens: BTreeMap::new(),
            token_order: VecDeque::new(),
            revision: 0,
            instance_revision: 0,
        }
    }

    /// Carries out everything that is due at `now`, in order, each at its own instant.
    pub(crate) fn advance(&mut self, now: Timestamp) {
        while let Some(entry) = self.agenda.first_entry().filter(|entry| entry.key().0 <= now) {
            let ((at, _), due) = entry.remove_entry();
            match due {
                Due::Transition { instance, from, since } => self.transition(at, &instance, from, since),
                Due::Reclaim { instance } => self.reclaim(at, &instance),
                Due::Forget { instance } => self.forget(&instance),
                Due::ImageReady { image } => self.image_ready(&image),
                Due::Evaluate { request } => self.evaluate(at, &request),
                Due::ForgetRequest { request } => self.forget_spot_request(&request),
                Due::KeepFleet { fleet } => self.keep_fleet(at, &fleet),
                Due::ForgetFleet { fleet } => drop(self.fleets.remove(&fleet)),
                Due::ExpireReservation { reservation } => self.expire_reservation(at, &reservation),
                Due::Deliver { queue, body, group } => self.deliver(at, &queue, body, group),
                Due::Cluster { name, from } => self.leave_cluster(&name, from),
                Due::MoveMessages { task } => self.move_messages(at, &task),
            }
        }
    }

    /// When something happens by itself next.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.agenda.first_key_value().map(|((at, _), _)| *at)
    }

    pub(crate) fn schedule(&mut self, at: Timestamp, due: Due) {
        self.agenda_count += 1;
        self.agenda.insert((at, self.agenda_count), due);
        self.revision += 1;
    }

    /// Sends an event to the queues of the rules that match it; its id is answered.
    pub(crate) fn emit(
        &mut self,
        at: Timestamp,
        source: &str,
        detail_type: &str,
        resources: &[String],
        detail: serde_json::Value,
    ) -> String {
        let (id, event) = self.event(at, source, detail_type, resources, detail);
        self.route(at, &event);
        id
    }

    /// An event of this time, and its id.
    pub(crate) fn event(
        &mut self,
        time: Timestamp,
        source: &str,
        detail_type: &str,
        resources: &[String],
        detail: serde_json::Value,
    ) -> (String, serde_json::Value) {
        let id = self.ids.uuid();
        let event = serde_json::json!({
            "version": "0",
            "id": id,
            "detail-type": detail_type,
            "source": source,
            "account": self.config.account,
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            "region": self.config.region,
            "resources": resources,
            "detail": detail,
        });
        (id, event)
    }

    /// Sends a whole event to the queues of the rules that match it; answers how many.
    pub(crate) fn route(&mut self, at: Timestamp, event: &serde_json::Value) -> usize {
        let targets = self.bus.targets(event);
        let due = after(at, self.config.event_delay);
        for (rule, target) in &targets {
            let Some(queue) = target.arn.rsplit(':').next().filter(|_| target.arn.starts_with("arn:aws:sqs:")) else {
                continue;
            };
            if !queue_takes_events(self, &target.arn, rule) {
                tracing::warn!(
                    queue,
                    rule,
                    "an event was not sent: the queue's policy does not let events.amazonaws.com send"
                );
                continue;
            }
            if let Some(body) = target.body(event) {
                let (queue, group) = (queue.to_owned(), target.message_group_id.clone());
                self.schedule(due, Due::Deliver { queue, body, group });
            }
        }
        let event = event.to_string();
        let count = targets.len();
        let targets = targets.into_iter().map(|(_, target)| target.arn).collect();
        self.event_bytes += event.len();
        self.event_count += 1;
        self.events.push_back(Emitted { sequence: self.event_count, event, targets });
        while self.event_bytes > MAX_EVENT_BYTES {
            self.event_bytes -= self.events.pop_front().map_or(0, |oldest| oldest.event.len());
        }
        count
    }

    fn deliver(&mut self, at: Timestamp, queue: &str, body: String, group: Option<String>) {
        // A rule whose queue is gone loses its events, as EventBridge's do after its retries.
        if let Some(queue) = self.queues.get_mut(queue) {
            let draft = Draft { body, group, sender: "events.amazonaws.com".into(), ..Draft::default() };
            if let Err(error) = queue.send(at, &mut self.ids, draft) {
                tracing::warn!(error = %error.message, "an event could not be delivered");
            }
            self.revision += 1;
        }
    }

    /// The answer given earlier to this client token, if the request is the same.
    // fidelity: documented(EC2 API Reference, Ensuring idempotency)
    pub(crate) fn recall(
        &self,
        action: &str,
        token: Option<&str>,
        fingerprint: &str,
    ) -> Result<Option<String>, ApiError> {
        let key = token.map(|token| (action.to_owned(), token.to_owned()));
        match key.and_then(|key| self.tokens.get(&key)) {
            None => Ok(None),
            Some((known, answer)) if known == fingerprint => Ok(Some(answer.clone())),
            Some(_) => {
                let message = "The client token you have provided is associated with a resource that is already deleted or has different parameters.";
                Err(ApiError::client("IdempotentParameterMismatch", message))
            }
        }
    }

    pub(crate) fn remember(&mut self, action: &str, token: Option<&str>, fingerprint: String, answer: &str) {
        let Some(token) = token else { return };
        let key = (action.to_owned(), token.to_owned());
        self.tokens.insert(key.clone(), (fingerprint, answer.to_owned()));
        self.token_order.push_back(key);
        if self.token_order.len() > MAX_TOKENS {
            self.token_order.pop_front().and_then(|oldest| self.tokens.remove(&oldest));
        }
    }

    /// USD per hour and since when.
    pub(crate) fn spot_price(&self, instance_type: &str, zone: &str) -> Option<(f64, Timestamp)> {
        match self.spot_price_changes(instance_type, zone).last() {
            Some((price, since)) => price.map(|price| (price, *since)),
            None => Some((*self.catalogue.offering(instance_type)?.spot.get(zone)?, self.started_at)),
        }
    }

    fn spot_price_changes(&self, instance_type: &str, zone: &str) -> &[PriceChange] {
        // Most accounts have none, and fleets ask for many prices.
        if self.spot_prices.is_empty() {
            return &[];
        }
        self.spot_prices.get(&(instance_type.to_owned(), zone.to_owned())).map_or(&[], Vec::as_slice)
    }

    /// Every spot price there was, the latest last; none where spot is withdrawn.
    pub(crate) fn spot_price_history(&self, instance_type: &str, zone: &str) -> Vec<(f64, Timestamp)> {
        if self.is_spot_withdrawn(instance_type, zone) {
            return Vec::new();
        }
        let changes = self.spot_price_changes(instance_type, zone);
        let offering = self.catalogue.offering(instance_type);
        let first = offering.and_then(|offering| offering.spot.get(zone)).map(|price| (*price, self.started_at));
        // A price set before any time had passed never left room for the catalogue's.
        let first = first.filter(|(_, since)| changes.first().is_none_or(|(_, changed)| changed > since));
        let changes = changes.iter().filter_map(|(price, since)| Some(((*price)?, *since)));
        first.into_iter().chain(changes).collect()
    }

    /// Whether somebody has taken the offering's spot price away.
    pub(crate) fn is_spot_withdrawn(&self, instance_type: &str, zone: &str) -> bool {
        self.spot_price_changes(instance_type, zone).last().is_some_and(|(price, _)| price.is_none())
    }

    pub(crate) fn on_demand_price(&self, instance_type: &str) -> Option<f64> {
        let changed = self.on_demand_prices.get(instance_type).copied();
        changed.or_else(|| self.catalogue.offering(instance_type)?.on_demand)
    }

    pub(crate) fn set_spot_price(&mut self, now: Timestamp, instance_type: &str, zone: &str, price: Option<f64>) {
        let changes = self.spot_prices.entry((instance_type.into(), zone.into())).or_default();
        // Of several prices in one instant only the last ever held.
        changes.retain(|(_, since)| *since != now);
        changes.push((price, now));
        if changes.len() > MAX_PRICE_CHANGES {
            changes.remove(0);
        }
    }

    pub(crate) fn set_on_demand_price(&mut self, instance_type: &str, price: f64) {
        self.on_demand_prices.insert(instance_type.into(), price);
    }

    /// The tags of whatever has this id, with the word the API uses for its kind.
    pub(crate) fn tags_mut(&mut self, id: &str) -> Option<&mut Tags> {
        if self.instances.contains_key(id) {
            return self.instances.get_mut(id).map(|instance| &mut instance.tags);
        }
        if let Some(image) = self.images.images.get_mut(id) {
            return Some(&mut image.tags);
        }
        if let Some(template) = self.templates.get_mut(id) {
            return Some(&mut template.tags);
        }
        if let Some(request) = self.spot_requests.get_mut(id) {
            return Some(&mut request.tags);
        }
        if let Some(reservation) = self.reservations.get_mut(id) {
            return Some(&mut reservation.tags);
        }
        if let Some(group) = self.placement_groups.get_mut(id) {
            return Some(&mut group.tags);
        }
        if let Some(fleet) = self.fleets.get_mut(id) {
            return Some(&mut fleet.tags);
        }
        if let Some(snapshot) = self.images.snapshots.get_mut(id) {
            return Some(&mut snapshot.tags);
        }
        if let Some(pair) = self.key_pairs.values_mut().find(|pair| pair.id == id) {
            return Some(&mut pair.tags);
        }
        if let Some(free) = self.volumes.get_mut(id) {
            return Some(&mut free.volume.tags);
        }
        if let Some(owner) = self.parts.get(id) {
            return self.instances.get_mut(owner).and_then(|instance| instance.part_tags_mut(id));
        }
        self.network.tags_mut(id)
    }

    /// The tags of whatever has this id, to read.
    pub(crate) fn tags_of(&self, id: &str) -> Option<&Tags> {
        (self.instances.get(id).map(|instance| &instance.tags))
            .or_else(|| self.images.images.get(id).map(|image| &image.tags))
            .or_else(|| self.templates.find(Some(id), None).ok().map(|template| &template.tags))
            .or_else(|| self.spot_requests.get(id).map(|request| &request.tags))
            .or_else(|| self.reservations.get(id).map(|reservation| &reservation.tags))
            .or_else(|| self.placement_groups.get(id).map(|group| &group.tags))
            .or_else(|| self.fleets.get(id).map(|fleet| &fleet.tags))
            .or_else(|| self.images.snapshots.get(id).map(|snapshot| &snapshot.tags))
            .or_else(|| self.key_pairs.values().find(|pair| pair.id == id).map(|pair| &pair.tags))
            .or_else(|| self.volumes.get(id).map(|free| &free.volume.tags))
            .or_else(|| self.owner_of_part(id).and_then(|instance| instance.part_tags(id)))
            .or_else(|| self.network.tags_of(id))
    }

    pub(crate) fn instance(&self, id: &str) -> Result<&Instance, ApiError> {
        self.instances.get(id).ok_or_else(|| no_such_instance(&[id]))
    }

    pub(crate) fn queue_url(&self, name: &str) -> String {
        format!("https://sqs.{}.amazonaws.com/{}/{name}", self.config.region, self.config.account)
    }

    pub(crate) fn arn(&self, service: &str, resource: &str) -> String {
        let Config { region, account, .. } = &self.config;
        match service {
            "iam" => format!("arn:aws:iam::{account}:{resource}"),
            _ => format!("arn:aws:{service}:{region}:{account}:{resource}"),
        }
    }
}

// fidelity: documented(EC2 API Reference, Error codes: InvalidInstanceID.NotFound, InvalidInstanceID.Malformed)
pub(crate) fn no_such_instance(ids: &[&str]) -> ApiError {
    let message = match ids {
        [id] => format!("The instance ID '{id}' does not exist"),
        many => format!("The instance IDs '{}' do not exist", many.join(", ")),
    };
    ApiError::client("InvalidInstanceID.NotFound", message)
}

/// Refuses ids that do not look like `prefix-` and hexadecimal digits.
pub(crate) fn check_id(id: &str, prefix: &str, code: &'static str) -> Result<(), ApiError> {
    let digits = id.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('-'));
    let well_formed =
        digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    match well_formed {
        true => Ok(()),
        false => Err(ApiError::client(code, format!("Invalid id: \"{id}\" (expecting \"{prefix}-...\")"))),
    }
}

pub(crate) fn after(at: Timestamp, duration: Duration) -> Timestamp {
    SignedDuration::try_from(duration).ok().and_then(|duration| at.checked_add(duration).ok()).unwrap_or(Timestamp::MAX)
}
