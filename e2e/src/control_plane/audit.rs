//! The requests to a genuine API server, read from its audit log (https://kubernetes.io/docs/tasks/debug/debug-cluster/audit/)
//! as the recorder takes them: every write, whole. Of reads only the controller's are logged, without bodies, so that a
//! refused one is seen: nothing is decided by the others.

use crate::recorder::{Call, Wire};
use crate::story;
use anyhow::Context;
use base64::Engine as _;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::rc::Rc;

/// The ServiceAccounts of the controllers, ours and others, as the API server knows them.
const CONTROLLERS: [&str; 2] =
    ["system:serviceaccount:kube-system:karpenter", "system:serviceaccount:kube-system:karpenter-other"];

/// Which requests are logged: writes that ended, with both bodies.
pub(crate) const POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
  - level: Metadata
    verbs: [get, list, watch]
    users: ['system:serviceaccount:kube-system:karpenter', 'system:serviceaccount:kube-system:karpenter-other']
  - level: None
    verbs: [get, list, watch]
  - level: None
    resources:
      - {group: authentication.k8s.io}
      - {group: authorization.k8s.io}
  # The controllers' own tokens are nobody's to read.
  - level: Metadata
    resources:
      - {group: '', resources: [secrets, serviceaccounts/token]}
  - level: RequestResponse
";

/// Names of those who share a ServiceAccount, by the ids of their tokens.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names(Rc<RefCell<BTreeMap<String, String>>>);

impl Names {
    /// Lets whoever has this token go by a name.
    ///
    /// # Errors
    /// Where it is no token of a ServiceAccount, which has an id.
    pub(crate) fn give(&self, token: &str, name: &str) -> anyhow::Result<()> {
        let payload = token.split('.').nth(1).context("it has no payload")?;
        let payload = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(payload).context("its payload")?;
        let claims: Value = serde_json::from_slice(&payload).context("its claims")?;
        let id = claims["jti"].as_str().context("it has no id")?;
        self.0.borrow_mut().insert(format!("JTI={id}"), name.to_owned());
        Ok(())
    }

    /// What the user of a request is called: a controller by its pod or its token, the programs of the control plane by their
    /// own names.
    fn of(&self, user: &Value) -> String {
        let username = user["username"].as_str().unwrap_or_default();
        let extra = |name: &str| {
            let values = user["extra"].get(format!("authentication.kubernetes.io/{name}"))?;
            values.get(0)?.as_str()
        };
        let own = || extra("credential-id").and_then(|id| self.0.borrow().get(id).cloned());
        match username {
            controller if CONTROLLERS.contains(&controller) => {
                own().or_else(|| extra("pod-name").map(str::to_owned)).unwrap_or_else(|| controller.to_owned())
            }
            other => other.trim_start_matches("system:").to_owned(),
        }
    }
}

/// A request as it was logged.
pub(crate) struct Entry {
    pub(crate) call: Call,
    /// Why it was refused to the controller, where its roles do not allow it.
    pub(crate) refusal: Option<String>,
}

/// Follows the log from where it ends now.
pub(crate) struct Follower {
    file: File,
    rest: Vec<u8>,
    names: Names,
}

impl Follower {
    pub(crate) fn from_the_end_of(path: &Path, names: Names) -> anyhow::Result<Self> {
        let mut file = File::open(path).with_context(|| format!("cannot read the audit log {}", path.display()))?;
        file.seek(SeekFrom::End(0))?;
        Ok(Self { file, rest: Vec::new(), names })
    }

    /// The writes, and the refused reads, that were logged since the last call.
    pub(crate) fn entries(&mut self) -> anyhow::Result<Vec<Entry>> {
        self.file.read_to_end(&mut self.rest).context("reading the audit log")?;
        let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else { return Ok(Vec::new()) };
        let lines: Vec<u8> = self.rest.drain(..=end).collect();
        let mut entries = Vec::new();
        for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let event = serde_json::from_slice(line).context("a line of the audit log")?;
            entries.extend(self.entry(&event));
        }
        Ok(entries)
    }

    fn entry(&self, event: &Value) -> Option<Entry> {
        let refusal = refusal(event);
        let is_read = matches!(event["verb"].as_str(), Some("get" | "list" | "watch"));
        (!is_read || refusal.is_some()).then(|| Entry { call: call(event, &self.names), refusal })
    }
}

/// What the API server answered the controller whose roles allow too little.
fn refusal(event: &Value) -> Option<String> {
    let is_forbidden = event["annotations"]["authorization.k8s.io/decision"] == "forbid";
    let is_controller = CONTROLLERS.iter().any(|controller| event["user"]["username"] == *controller);
    let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    (is_forbidden && is_controller).then(|| text("/responseStatus/message").to_owned())
}

fn call(event: &Value, names: &Names) -> Call {
    let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let path = text("/requestURI");
    let body = |name: &str| event.get(name).cloned().unwrap_or(Value::Null);
    let response = body("responseObject");
    Call {
        at: text("/stageTimestamp").parse().unwrap_or(Timestamp::UNIX_EPOCH),
        wire: Wire::Kube,
        caller: names.of(&event["user"]),
        name: format!("{} {}", text("/verb"), story::resource(path)),
        request: json!({"path": path, "body": body("requestObject")}),
        status: event
            .pointer("/responseStatus/code")
            .and_then(Value::as_u64)
            .and_then(|code| code.try_into().ok())
            .unwrap_or(0),
        response: Value::String(if response.is_null() { String::new() } else { response.to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_line_is_read_once_and_only_when_it_is_whole() {
        let path = std::env::temp_dir().join(format!("trysquare-audit-{}", std::process::id()));
        let mut file = File::create(&path).unwrap();
        writeln!(file, "{{\"verb\":\"before\"}}").unwrap();
        let mut follower = Follower::from_the_end_of(&path, Names::default()).unwrap();
        let line = json!({
            "verb": "create", "requestURI": "/api/v1/namespaces/default/pods/web/eviction",
            "user": {"username": "karpenter-3"}, "responseStatus": {"code": 201},
            "requestObject": {"kind": "Eviction"}, "stageTimestamp": "2026-01-01T00:00:00.000000Z",
        })
        .to_string();
        let (one, two) = line.split_at(40);
        write!(file, "{one}").unwrap();
        assert!(follower.entries().unwrap().is_empty());
        writeln!(file, "{two}").unwrap();
        let entries = follower.entries().unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(entries.len(), 1);
        let call = &entries[0].call;
        assert_eq!(
            (call.caller.as_str(), call.name.as_str(), call.status),
            ("karpenter-3", "create pods/eviction", 201)
        );
        assert_eq!(call.evicted_pod().as_deref(), Some("default/web"));
        assert!(follower.entries().unwrap().is_empty());
    }

    /// Claims: `{"jti":"one"}`.
    const TOKEN: &str = "e30.eyJqdGkiOiJvbmUifQ.x";

    #[test]
    fn controllers_that_share_a_service_account_are_told_apart() {
        let names = Names::default();
        names.give(TOKEN, "karpenter-7").unwrap();
        let user = |extra: Value| json!({"username": CONTROLLERS[0], "extra": extra});
        let id = "authentication.kubernetes.io/credential-id";
        assert_eq!(names.of(&user(json!({id: ["JTI=one"]}))), "karpenter-7");
        let pod = json!({id: ["JTI=two"], "authentication.kubernetes.io/pod-name": ["karpenter-5d4f-abcde"]});
        assert_eq!(names.of(&user(pod)), "karpenter-5d4f-abcde");
        assert_eq!(names.of(&json!({"username": "system:kube-scheduler"})), "kube-scheduler");
        assert!(names.give("no token", "x").is_err());
    }

    #[test]
    fn only_what_roles_refuse_is_a_refusal_and_a_read_is_told_only_then() {
        let event = |verb: &str, decision: &str, username: &str| {
            json!({
                "verb": verb, "requestURI": "/api/v1/pods", "user": {"username": username},
                "annotations": {"authorization.k8s.io/decision": decision},
                "responseStatus": {"code": 403, "message": "pods is forbidden"},
            })
        };
        let path = std::env::temp_dir().join(format!("trysquare-audit-refusals-{}", std::process::id()));
        File::create(&path).unwrap();
        let follower = Follower::from_the_end_of(&path, Names::default()).unwrap();
        std::fs::remove_file(&path).unwrap();
        let told = |event: &Value| follower.entry(event).map(|entry| entry.refusal);
        assert_eq!(told(&event("list", "forbid", CONTROLLERS[0])), Some(Some("pods is forbidden".to_owned())));
        assert_eq!(told(&event("list", "allow", CONTROLLERS[0])), None);
        // A quota refuses too.
        assert_eq!(told(&event("create", "allow", CONTROLLERS[1])), Some(None));
        assert_eq!(told(&event("create", "forbid", "somebody")), Some(None));
    }
}
