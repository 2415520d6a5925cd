//! `pods/eviction`: deletion as far as disruption budgets allow.

use std::sync::Arc;

use serde_json::{Value, json};

use super::binding::set_condition;
use crate::{
    deletion::{DeleteOptions, check_preconditions},
    kinds::Kind,
    resources,
    select::LabelSelector,
    state::State,
    status::Status,
    store::Stored,
};

/// Budgets that carry more unconfirmed evictions than this refuse further ones, as the server does.
const MAX_DISRUPTED_PODS: usize = 2_000;

const REFUSAL: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

impl State {
    /// Evicts a pod. The result is the pod in its last or terminating state.
    pub(crate) fn evict(
        &mut self,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Arc<Stored>, Status> {
        let kind = self.builtin(&resources::PODS)?;
        let pod = Arc::clone(self.get(&kind, namespace, name)?);
        if !disrupts(&pod.value) {
            return self.condemn(&kind, namespace, name, &pod, options);
        }
        let budgets = self.builtin(&resources::POD_DISRUPTION_BUDGETS)?;
        let labels = &pod.value["metadata"]["labels"];
        let matching: Vec<_> = self
            .store
            .table(budgets.table)
            .iter_namespace(namespace)
            .filter(|budget| LabelSelector::from_object(&budget.value["spec"]["selector"]).matches(labels))
            .cloned()
            .collect();
        match matching.as_slice() {
            [] => {}
            [budget] => {
                if !covered_as_unhealthy(&pod.value, &budget.value) {
                    self.spend(&budgets, namespace, name, budget, options.dry_run)?;
                }
            }
            _ => {
                return Err(Status::new(
                    500,
                    "",
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
                ));
            }
        }
        self.condemn(&kind, namespace, name, &pod, options)
    }

    /// Takes one disruption from the budget and notes the pod in it, or says why not.
    fn spend(
        &mut self,
        kind: &Arc<Kind>,
        namespace: &str,
        pod: &str,
        budget: &Arc<Stored>,
        dry_run: bool,
    ) -> Result<(), Status> {
        let object = &budget.value;
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let status = &object["status"];
        let number = |key: &str| status[key].as_i64().unwrap_or(0);
        let generation = object["metadata"]["generation"].as_i64().unwrap_or(0);
        if number("observedGeneration") < generation {
            let cause = format!("The disruption budget {name} is still being processed by the server.");
            return Err(Status::too_many_requests(REFUSAL, 10).with_cause("DisruptionBudget", cause, ""));
        }
        let forbidden = |why: &str| {
            let mut refusal = Status::forbidden(kind, name, why);
            refusal.message = format!("poddisruptionbudget.policy \"{name}\" is forbidden: {why}");
            refusal
        };
        if number("disruptionsAllowed") < 0 {
            return Err(forbidden("pdb disruptions allowed is negative"));
        }
        if status["disruptedPods"].as_object().is_some_and(|pods| pods.len() > MAX_DISRUPTED_PODS) {
            return Err(forbidden("DisruptedPods map too big - too many evictions not confirmed by PDB controller"));
        }
        if number("disruptionsAllowed") == 0 {
            return Err(Status::too_many_requests(REFUSAL, 0).with_cause(
                "DisruptionBudget",
                why_none(name, status),
                "",
            ));
        }
        if dry_run {
            return Ok(());
        }
        let left = number("disruptionsAllowed") - 1;
        let mut next = (**object).clone();
        next["status"]["disruptionsAllowed"] = json!(left);
        if left == 0 {
            let condition = json!({
                "type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
                "observedGeneration": generation, "lastTransitionTime": self.timestamp(),
            });
            set_condition(&mut next, condition);
        }
        next["status"]["disruptedPods"][pod] = json!(self.timestamp());
        self.store.put(kind.table, namespace, name, next);
        Ok(())
    }

    /// Marks the pod as disrupted and deletes it.
    fn condemn(
        &mut self,
        kind: &Arc<Kind>,
        namespace: &str,
        name: &str,
        pod: &Arc<Stored>,
        options: &DeleteOptions,
    ) -> Result<Arc<Stored>, Status> {
        let mut options = options.clone();
        if !options.dry_run {
            check_preconditions(kind, name, &pod.value, &options)?;
            let mut marked = (*pod.value).clone();
            let condition = json!({
                "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
                "message": "Eviction API: evicting", "lastProbeTime": null, "lastTransitionTime": self.timestamp(),
            });
            set_condition(&mut marked, condition);
            let marked = self.store.put(kind.table, namespace, name, marked);
            // The precondition was met; the mark itself is what changed since.
            if options.resource_version.is_some() {
                options.resource_version = Some(marked.version.to_string());
            }
        }
        Ok(self.delete(kind, namespace, name, &options)?.object)
    }
}

/// Whether evicting the pod disrupts anything: a finished, waiting or leaving pod may go in any case.
fn disrupts(pod: &Value) -> bool {
    let phase = pod["status"]["phase"].as_str().unwrap_or_default();
    !matches!(phase, "Succeeded" | "Failed" | "Pending") && !pod["metadata"]["deletionTimestamp"].is_string()
}

/// Whether the pod is not ready and the budget lets such pods go without counting them.
fn covered_as_unhealthy(pod: &Value, budget: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let ready = conditions.into_iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
    if ready {
        return false;
    }
    let number = |key: &str| budget["status"][key].as_i64().unwrap_or(0);
    budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
        || (number("currentHealthy") >= number("desiredHealthy") && number("desiredHealthy") > 0)
}

fn why_none(name: &str, status: &Value) -> String {
    let number = |key: &str| status[key].as_i64().unwrap_or(0);
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let denial = conditions.into_iter().find(|condition| {
        condition["type"] == "DisruptionAllowed"
            && condition["status"] == "False"
            && condition["message"].as_str().is_some_and(|message| !message.is_empty())
    });
    let text = |denial: &Value, key: &str| denial[key].as_str().unwrap_or_default().to_owned();
    let (current, desired) = (number("currentHealthy"), number("desiredHealthy"));
    match denial {
        Some(denial) if denial["reason"] == "SyncFailed" => format!(
            "The disruption budget {name} does not allow evicting pods currently because it failed sync: {}",
            text(denial, "message")
        ),
        _ if current <= desired => {
            format!("The disruption budget {name} needs {desired} healthy pods and has {current} currently")
        }
        Some(denial) => format!(
            "The disruption budget {name} does not allow evicting pods currently ({}): {}",
            text(denial, "reason"),
            text(denial, "message")
        ),
        None => format!("The disruption budget {name} does not allow evicting pods currently"),
    }
}
