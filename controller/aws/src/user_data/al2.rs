//! Amazon Linux 2: a call of the image's bootstrap script, after the class's own parts.

use super::mime::{self, Part, SHELL_SCRIPT};
use super::{Bootstrap, joined, taint_text};

pub(super) fn render(bootstrap: &Bootstrap<'_>) -> String {
    let mut parts = custom_parts(bootstrap.custom.unwrap_or_default());
    parts.push(Part::new(SHELL_SCRIPT, script(bootstrap)));
    mime::write(&parts)
}

/// An archive's parts, or the text as one script. An archive that cannot be read is passed on as a script too: cloud-init
/// knows archives better than we do.
fn custom_parts(text: &str) -> Vec<Part> {
    if text.is_empty() {
        return Vec::new();
    }
    let parts = if mime::is_multipart(text) { mime::read(text).ok() } else { None };
    parts.unwrap_or_else(|| vec![Part::new(SHELL_SCRIPT, text)])
}

fn script(bootstrap: &Bootstrap<'_>) -> String {
    let dns = bootstrap.cluster_dns();
    let dns = dns.first();
    let mut lines = vec![format!(
        "/etc/eks/bootstrap.sh '{}' --apiserver-endpoint '{}' --b64-cluster-ca '{}'",
        bootstrap.cluster_name, bootstrap.endpoint, bootstrap.ca_bundle
    )];
    if dns.is_some_and(|address| address.contains(':')) {
        lines.push("--ip-family ipv6".to_owned());
    }
    lines.extend(dns.map(|address| format!("--dns-cluster-ip '{address}'")));
    lines.push("--use-max-pods false".to_owned());
    lines.push(format!("--kubelet-extra-args '{}'", kubelet_arguments(bootstrap).join(" ")));
    if bootstrap.raid0 {
        lines.push("--local-disks raid0".to_owned());
    }
    format!(
        "#!/bin/bash -xe\nexec > >(tee /var/log/user-data.log|logger -t user-data -s 2>/dev/console) 2>&1\n{}",
        lines.join(" \\\n")
    )
}

/// The kubelet's flags, in upstream's order.
fn kubelet_arguments(bootstrap: &Bootstrap<'_>) -> Vec<String> {
    let kubelet = bootstrap.kubelet;
    let taints: Vec<String> = bootstrap.taints.iter().map(taint_text).collect();
    let mut arguments = vec![
        format!("--node-labels=\"{}\"", bootstrap.node_labels()),
        format!("--register-with-taints=\"{}\"", taints.join(",")),
        format!("--max-pods={}", bootstrap.max_pods),
    ];
    arguments.extend(kubelet.pods_per_core.map(|count| format!("--pods-per-core={count}")));
    let maps = [
        ("system-reserved", &kubelet.system_reserved, "="),
        ("kube-reserved", &kubelet.kube_reserved, "="),
        ("eviction-hard", &kubelet.eviction_hard, "<"),
        ("eviction-soft", &kubelet.eviction_soft, "<"),
        ("eviction-soft-grace-period", &kubelet.eviction_soft_grace_period, "="),
    ];
    let filled = maps.into_iter().filter(|(_, map, _)| !map.is_empty());
    arguments.extend(filled.map(|(flag, map, between)| format!("--{flag}=\"{}\"", joined(map, between))));
    let numbers = [
        ("eviction-max-pod-grace-period", kubelet.eviction_max_pod_grace_period),
        ("image-gc-high-threshold", kubelet.image_gc_high_threshold_percent),
        ("image-gc-low-threshold", kubelet.image_gc_low_threshold_percent),
    ];
    arguments.extend(numbers.into_iter().filter_map(|(flag, number)| Some(format!("--{flag}={}", number?))));
    arguments.extend(kubelet.cpu_cfs_quota.map(|on| format!("--cpu-cfs-quota={on}")));
    arguments
}
