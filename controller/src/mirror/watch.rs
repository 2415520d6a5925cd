//! One watch per kind, from list to events, for as long as the run lasts.

use super::Mirror;
use super::changes::{Kind, lock};
use super::stores::{ObjectName, Watched};
use crate::error::{chain, is_not_found};
use controller_api::{Ec2NodeClass, NodeClaim, NodePool};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use kube::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use std::collections::BTreeSet;
use std::pin::pin;

impl Mirror {
    /// Watches every kind for as long as the future lives.
    pub(crate) async fn run(&self, kube: &kube::Client) {
        // Only the watch that has something is polled: there are as many wake-ups as there are writes in the cluster.
        let watches: FuturesUnordered<BoxFuture<'_, ()>> = FuturesUnordered::new();
        watches.push(Box::pin(self.watch::<Pod>(kube)));
        watches.push(Box::pin(self.watch::<Node>(kube)));
        watches.push(Box::pin(self.watch::<NodeClaim>(kube)));
        watches.push(Box::pin(self.watch::<NodePool>(kube)));
        watches.push(Box::pin(self.watch::<Ec2NodeClass>(kube)));
        watches.push(Box::pin(self.watch::<DaemonSet>(kube)));
        watches.push(Box::pin(self.watch::<PodDisruptionBudget>(kube)));
        watches.push(Box::pin(self.watch::<Namespace>(kube)));
        watches.push(Box::pin(self.watch::<PersistentVolume>(kube)));
        watches.push(Box::pin(self.watch::<PersistentVolumeClaim>(kube)));
        watches.push(Box::pin(self.watch::<StorageClass>(kube)));
        watches.push(Box::pin(self.watch::<CSINode>(kube)));
        watches.collect::<Vec<()>>().await;
    }

    async fn watch<K: Watched>(&self, kube: &kube::Client) {
        let api = Api::<K>::all(kube.clone());
        let mut events = pin!(watcher(api, watcher::Config::default()).default_backoff());
        let mut seen = BTreeSet::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => seen.clear(),
                Ok(Event::InitApply(object)) => {
                    seen.insert(ObjectName::of(&object));
                    self.put(object, true);
                }
                Ok(Event::InitDone) => {
                    self.drop_unseen::<K>(&seen);
                    seen = BTreeSet::new();
                    self.note_listed(K::KIND);
                }
                Ok(Event::Apply(object)) => self.put(object, true),
                Ok(Event::Delete(object)) => self.deleted(&object),
                Err(watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error))
                    if is_not_found(&error) =>
                {
                    tell_missing::<K>();
                }
                Err(error) => {
                    tracing::error!(kind = %K::kind(&()), error = %chain(&error), "watching failed");
                }
            }
        }
    }

    /// After a list, what it did not hold is gone; except claims we have just created, which it may have missed.
    fn drop_unseen<K: Watched>(&self, seen: &BTreeSet<ObjectName>) {
        let missing: Vec<ObjectName> = {
            let state = lock(&self.state);
            let store = K::stored(&state).iter();
            store
                .filter(|(name, stored)| stored.confirmed && !seen.contains(name))
                .map(|(name, _)| name.clone())
                .collect()
        };
        for name in missing {
            self.take::<K>(&name);
        }
    }

    fn note_listed(&self, kind: Kind) {
        lock(&self.state).listed.insert(kind);
        self.revision.send_modify(|revision| *revision += 1);
    }
}

/// The API server does not know the kind. Until it does, nothing is decided; the watch is tried again by itself.
fn tell_missing<K: Watched>() {
    let definition = format!("{}.{}", K::plural(&()), K::group(&()));
    tracing::error!(
        CustomResourceDefinition = %definition,
        "a CustomResourceDefinition is not installed, nothing is decided until it is; `controller crd` prints those of \
         this version"
    );
}
