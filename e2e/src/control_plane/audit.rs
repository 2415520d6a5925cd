//! The requests to a genuine API server, read from its audit log (https://kubernetes.io/docs/tasks/debug/debug-cluster/audit/)
//! as the recorder takes them: every write, whole. Reads are not logged: nothing is decided by them.

use crate::recorder::{Call, Wire};
use crate::story;
use anyhow::Context;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// Which requests are logged: writes that ended, with both bodies.
pub(super) const POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
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

/// Follows the log from where it ends now.
pub(crate) struct Follower {
    file: File,
    rest: Vec<u8>,
}

impl Follower {
    pub(crate) fn from_the_end_of(path: &Path) -> anyhow::Result<Self> {
        let mut file = File::open(path).with_context(|| format!("cannot read the audit log {}", path.display()))?;
        file.seek(SeekFrom::End(0))?;
        Ok(Self { file, rest: Vec::new() })
    }

    /// The requests that were logged since the last call.
    pub(crate) fn calls(&mut self) -> anyhow::Result<Vec<Call>> {
        self.file.read_to_end(&mut self.rest).context("reading the audit log")?;
        let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else { return Ok(Vec::new()) };
        let lines: Vec<u8> = self.rest.drain(..=end).collect();
        let lines = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| Ok(call(&serde_json::from_slice(line).context("a line of the audit log")?))).collect()
    }
}

fn call(event: &Value) -> Call {
    let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let path = text("/requestURI");
    let body = |name: &str| event.get(name).cloned().unwrap_or(Value::Null);
    let response = body("responseObject");
    Call {
        at: text("/stageTimestamp").parse().unwrap_or(Timestamp::UNIX_EPOCH),
        wire: Wire::Kube,
        // The programs of the control plane go by their own names.
        caller: text("/user/username").trim_start_matches("system:").to_owned(),
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
        let mut follower = Follower::from_the_end_of(&path).unwrap();
        let line = json!({
            "verb": "create", "requestURI": "/api/v1/namespaces/default/pods/web/eviction",
            "user": {"username": "karpenter-3"}, "responseStatus": {"code": 201},
            "requestObject": {"kind": "Eviction"}, "stageTimestamp": "2026-01-01T00:00:00.000000Z",
        })
        .to_string();
        let (one, two) = line.split_at(40);
        write!(file, "{one}").unwrap();
        assert!(follower.calls().unwrap().is_empty());
        writeln!(file, "{two}").unwrap();
        let calls = follower.calls().unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(calls.len(), 1);
        assert_eq!(
            (calls[0].caller.as_str(), calls[0].name.as_str(), calls[0].status),
            ("karpenter-3", "create pods/eviction", 201)
        );
        assert_eq!(calls[0].evicted_pod().as_deref(), Some("default/web"));
        assert!(follower.calls().unwrap().is_empty());
    }
}
