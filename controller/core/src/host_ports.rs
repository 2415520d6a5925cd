//! Ports that containers take on the node itself (core spec §3.16).

use std::net::IpAddr;

/// A port on the node's own address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPort {
    /// The address it is bound to; `0.0.0.0` or `::` for all.
    pub ip: String,
    /// The port.
    pub port: i32,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
}

impl HostPort {
    /// Whether both cannot be taken on one node.
    pub fn conflicts(&self, other: &Self) -> bool {
        self.port == other.port
            && self.protocol == other.protocol
            && (same_address(&self.ip, &other.ip) || unspecified(&self.ip) || unspecified(&other.ip))
    }
}

/// Whether some port of `wanted` is taken already.
pub fn conflict(taken: &[HostPort], wanted: &[HostPort]) -> bool {
    wanted.iter().any(|port| taken.iter().any(|other| port.conflicts(other)))
}

fn same_address(a: &str, b: &str) -> bool {
    a == b || matches!((a.parse::<IpAddr>(), b.parse::<IpAddr>()), (Ok(a), Ok(b)) if a == b)
}

fn unspecified(ip: &str) -> bool {
    ip.is_empty() || ip.parse::<IpAddr>().is_ok_and(|address| address.is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(ip: &str, port: i32, protocol: &str) -> HostPort {
        HostPort { ip: ip.into(), port, protocol: protocol.into() }
    }

    #[test]
    fn ports_conflict_when_protocol_and_number_agree_and_addresses_overlap() {
        for (a, b, expected) in [
            (port("0.0.0.0", 80, "TCP"), port("10.0.0.1", 80, "TCP"), true),
            (port("::", 80, "TCP"), port("10.0.0.1", 80, "TCP"), true),
            (port("10.0.0.1", 80, "TCP"), port("10.0.0.1", 80, "TCP"), true),
            (port("10.0.0.1", 80, "TCP"), port("10.0.0.2", 80, "TCP"), false),
            (port("0.0.0.0", 80, "TCP"), port("0.0.0.0", 80, "UDP"), false),
            (port("0.0.0.0", 80, "TCP"), port("0.0.0.0", 81, "TCP"), false),
        ] {
            assert_eq!(a.conflicts(&b), expected);
            assert_eq!(b.conflicts(&a), expected);
        }
    }
}
