//! Probes over HTTP, with the periods and thresholds of their container.

use crate::loopback;
use k8s_openapi::api::core::v1::{Container, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// A probe that goes on.
pub(super) struct Probing {
    /// `None`: there is no probe, and nothing ever changes.
    asked: Option<Asked>,
    holds: bool,
    /// Answers in a row that were other than `holds`.
    contrary: u32,
    due: Instant,
}

struct Asked {
    port: u16,
    path: String,
    period: Duration,
    timeout: Duration,
    failures: u32,
    successes: u32,
}

impl Probing {
    /// A probe of a container that starts now; `at_first` is believed until it is known. The container's ports are in truth
    /// others. A probe other than over HTTP is not played.
    pub(super) fn new(
        probe: Option<&Probe>,
        container: &Container,
        ports: &BTreeMap<u16, u16>,
        at_first: bool,
    ) -> Self {
        let seconds = |value: Option<i32>, usual: u64| Duration::from_secs(positive(value).map_or(usual, u64::from));
        let asked = probe.and_then(|probe| {
            let get = probe.http_get.as_ref()?;
            let port = port(container, &get.port)?;
            Some(Asked {
                port: ports.get(&port).copied().unwrap_or(port),
                path: get.path.clone().unwrap_or_else(|| "/".into()),
                period: seconds(probe.period_seconds, 10),
                timeout: seconds(probe.timeout_seconds, 1),
                failures: positive(probe.failure_threshold).unwrap_or(3),
                successes: positive(probe.success_threshold).unwrap_or(1),
            })
        });
        let due = Instant::now() + seconds(probe.and_then(|probe| probe.initial_delay_seconds), 0);
        Self { holds: asked.is_none() || at_first, asked, contrary: 0, due }
    }

    /// What is believed now.
    pub(super) fn holds(&self) -> bool {
        self.holds
    }

    /// Waits until something else is believed.
    pub(super) async fn changed(&mut self) -> bool {
        let Some(asked) = &self.asked else { return std::future::pending().await };
        loop {
            tokio::time::sleep_until(self.due).await;
            let answer = tokio::time::timeout(asked.timeout, asked.ask()).await.unwrap_or(false);
            self.due = Instant::now() + asked.period;
            self.contrary = if answer == self.holds { 0 } else { self.contrary + 1 };
            let enough = if self.holds { asked.failures } else { asked.successes };
            if self.contrary >= enough {
                (self.holds, self.contrary) = (answer, 0);
                return answer;
            }
        }
    }
}

impl Asked {
    async fn ask(&self) -> bool {
        let Ok(request) = http::Request::get(self.path.as_str()).body(Default::default()) else { return false };
        loopback::ask(self.port, request).await.is_ok_and(|(status, _)| (200..400).contains(&status.as_u16()))
    }
}

fn positive(value: Option<i32>) -> Option<u32> {
    value.and_then(|value| u32::try_from(value).ok()).filter(|value| *value > 0)
}

/// A port by its number, or by the name that the container gives it.
fn port(container: &Container, port: &IntOrString) -> Option<u16> {
    let number = match port {
        IntOrString::Int(number) => *number,
        IntOrString::String(name) => {
            let named = |port: &&k8s_openapi::api::core::v1::ContainerPort| port.name.as_ref() == Some(name);
            container.ports.iter().flatten().find(named)?.container_port
        }
    };
    number.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::io::{Read, Write};

    /// A server that answers with these codes, one connection each.
    fn answering(codes: &'static [u16]) -> u16 {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for code in codes {
                let (mut socket, _) = listener.accept().unwrap();
                let mut head = [0; 1024];
                let _ = socket.read(&mut head);
                let _ = write!(socket, "HTTP/1.1 {code} Word\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            }
        });
        port
    }

    fn container() -> (Container, BTreeMap<u16, u16>) {
        let probe = json!({"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 1, "failureThreshold": 2});
        let value =
            json!({"name": "controller", "ports": [{"name": "http", "containerPort": 8081}], "livenessProbe": probe});
        (serde_json::from_value(value).unwrap(), BTreeMap::new())
    }

    #[tokio::test]
    async fn as_many_failures_in_a_row_as_the_threshold_change_it() {
        let (container, mut ports) = container();
        ports.insert(8081, answering(&[200, 500, 302, 500, 503]));
        let started = Instant::now();
        let mut probing = Probing::new(container.liveness_probe.as_ref(), &container, &ports, true);
        assert!(!probing.changed().await);
        // Asked at 0, 1, 2, 3 and 4 seconds; the first failure stood alone.
        assert!(started.elapsed() >= Duration::from_secs(4));
    }

    #[tokio::test]
    async fn what_is_not_ready_is_asked_until_it_is() {
        let (container, mut ports) = container();
        ports.insert(8081, answering(&[500, 200]));
        let mut probing = Probing::new(container.liveness_probe.as_ref(), &container, &ports, false);
        assert!(!probing.holds());
        assert!(probing.changed().await);
    }

    #[test]
    fn without_a_probe_a_container_is_ready() {
        let (container, ports) = container();
        assert!(Probing::new(None, &container, &ports, false).holds());
    }
}
