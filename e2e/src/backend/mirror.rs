//! The objects of a genuine API server as watches show them: for the invariants, which look at all of them together, and for
//! the chronicle, which is told each change.

use super::seen::Objects;
use crate::chronicle::Sighting;
use fake_kube::Resource;
use futures::StreamExt;
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::Notify;

type Kept = BTreeMap<String, Arc<Value>>;

/// Shared by all its clones.
#[derive(Clone, Default)]
pub(super) struct Mirror {
    /// By plural name: no two of the kinds looked at share one.
    objects: Rc<RefCell<BTreeMap<String, Kept>>>,
}

impl Objects for Mirror {
    fn list(&self, resource: &Resource) -> Vec<Arc<Value>> {
        self.objects.borrow().get(&*resource.plural).into_iter().flat_map(BTreeMap::values).cloned().collect()
    }
}

impl Mirror {
    /// Follows a kind for as long as the future lives.
    pub(super) fn follow<T: Fn(Sighting, &Value)>(
        &self,
        client: kube::Client,
        resource: &Resource,
        kind: &str,
        changed: Arc<Notify>,
        tell: T,
    ) -> impl Future<Output = anyhow::Result<()>> + use<T> {
        let gvk = kube::core::GroupVersionKind::gvk(&resource.group, &resource.version, kind);
        let api: Api<DynamicObject> = Api::all_with(client, &ApiResource::from_gvk_with_plural(&gvk, &resource.plural));
        let (objects, plural) = (self.objects.clone(), resource.plural.to_string());
        async move {
            // With back-off and for ever: the kind may come to be defined later.
            let mut events = std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff());
            let mut listed = BTreeSet::new();
            while let Some(event) = events.next().await {
                let mut all = objects.borrow_mut();
                let kept = all.entry(plural.clone()).or_default();
                match event {
                    Err(_) => continue,
                    Ok(Event::Init) => listed.clear(),
                    Ok(Event::InitApply(object)) => {
                        listed.insert(key(&object));
                        put(kept, &object, &tell)?;
                    }
                    Ok(Event::InitDone) => {
                        let gone: Vec<String> = kept.keys().filter(|key| !listed.contains(*key)).cloned().collect();
                        for object in gone.iter().filter_map(|key| kept.remove(key)) {
                            tell(Sighting::Deleted, &object);
                        }
                    }
                    Ok(Event::Apply(object)) => put(kept, &object, &tell)?,
                    Ok(Event::Delete(object)) => {
                        kept.remove(&key(&object));
                        tell(Sighting::Deleted, &serde_json::to_value(&object)?);
                    }
                }
                changed.notify_one();
            }
            Ok(())
        }
    }
}

fn put(kept: &mut Kept, object: &DynamicObject, tell: &impl Fn(Sighting, &Value)) -> anyhow::Result<()> {
    let value = Arc::new(serde_json::to_value(object)?);
    let before = kept.insert(key(object), value.clone());
    tell(if before.is_some() { Sighting::Modified } else { Sighting::Added }, &value);
    Ok(())
}

fn key(object: &DynamicObject) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}
