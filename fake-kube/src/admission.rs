//! What happens to a new object between decoding and validation because of the rest of the cluster.

use serde_json::{Value, json};

use crate::{
    kinds::{Builtin, Kind},
    state::State,
    status::Status,
};

impl State {
    /// Refuses new content where there is no namespace for it, or none that stays.
    pub(crate) fn check_namespace(&self, kind: &Kind, namespace: &str, name: &str) -> Result<(), Status> {
        let namespaces = self.builtin(&crate::resources::NAMESPACES)?;
        let found = self.get(&namespaces, "", namespace)?;
        if found.value["metadata"]["deletionTimestamp"].is_string() {
            return Err(Status::forbidden(
                kind,
                name,
                format!("unable to create new content in namespace {namespace} because it is being terminated"),
            )
            .with_cause(
                "NamespaceTerminating",
                format!("namespace {namespace} is being terminated"),
                "metadata.namespace",
            ));
        }
        Ok(())
    }

    /// What admission plug-ins and allocators do to an object that is being created.
    pub(crate) fn admit(&mut self, kind: &Kind, object: &mut Value) -> Result<(), Status> {
        match kind.builtin {
            Builtin::Pod => self.admit_pod(kind, object).and_then(|()| self.check_account(kind, object)),
            Builtin::Service => {
                self.address_service(&mut object["spec"]);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Gives a service the next cluster address, unless it wants none or brings one.
    fn address_service(&mut self, spec: &mut Value) {
        if spec["type"] != "ExternalName" && spec["clusterIP"].as_str().unwrap_or_default().is_empty() {
            self.services += 1;
            let [_, _, high, low] = self.services.to_be_bytes();
            spec["clusterIP"] = json!(format!("10.100.{high}.{low}"));
        }
        if spec["clusterIP"].is_string() && spec["clusterIPs"].is_null() {
            spec["clusterIPs"] = json!([spec["clusterIP"]]);
        }
    }

    /// A pod that names a service account needs it; the default one may still be on its way here.
    fn check_account(&self, kind: &Kind, object: &Value) -> Result<(), Status> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (namespace, name) = (text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]));
        let account = text(&object["spec"]["serviceAccountName"]);
        let accounts = self.builtin(&crate::resources::SERVICE_ACCOUNTS)?;
        let mirror = object["metadata"]["annotations"].get("kubernetes.io/config.mirror").is_some();
        if account == "default" || mirror || self.store.table(accounts.table).get(&namespace, &account).is_some() {
            return Ok(());
        }
        let why =
            format!("error looking up service account {namespace}/{account}: serviceaccount \"{account}\" not found");
        Err(Status::forbidden(kind, &name, why))
    }

    fn admit_pod(&self, kind: &Kind, object: &mut Value) -> Result<(), Status> {
        let classes = self.builtin(&crate::resources::PRIORITY_CLASSES)?;
        let class = object["spec"]["priorityClassName"].as_str().unwrap_or_default().to_owned();
        let found = if class.is_empty() {
            self.store.table(classes.table).iter().find(|class| class.value["globalDefault"] == true).cloned()
        } else {
            let found = self.store.table(classes.table).get("", &class).cloned();
            if found.is_none() {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                return Err(Status::forbidden(kind, name, format!("no PriorityClass with name {class} was found")));
            }
            found
        };
        let spec = &mut object["spec"];
        let (priority, policy) = match &found {
            Some(class) => {
                spec["priorityClassName"] = class.value["metadata"]["name"].clone();
                (class.value["value"].clone(), class.value["preemptionPolicy"].clone())
            }
            None => (json!(0), Value::Null),
        };
        let policy = if policy.is_null() { json!("PreemptLowerPriority") } else { policy };
        // Both follow from the class; a pod may repeat them and not choose them.
        let chosen = [
            ("integer value of priority", spec["priority"].clone(), priority.clone()),
            ("string value of PreemptionPolicy", spec["preemptionPolicy"].clone(), policy.clone()),
        ];
        spec["priority"] = priority;
        spec["preemptionPolicy"] = policy;
        for (what, given, computed) in chosen {
            if !given.is_null() && given != computed {
                let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                let why = format!(
                    "the {what} ({}) must not be provided in pod spec; priority admission controller computed {} from the \
                     given PriorityClass name",
                    plain(&given),
                    plain(&computed)
                );
                return Err(Status::forbidden(kind, name, why));
            }
        }
        Ok(())
    }
}
