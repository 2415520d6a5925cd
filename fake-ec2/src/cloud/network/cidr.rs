//! Ranges of addresses.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::net::{Ipv4Addr, Ipv6Addr};

/// An IPv4 range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cidr {
    base: u32,
    bits: u8,
}

impl Cidr {
    /// Parses `192.168.0.0/16`; what lies beyond the prefix is dropped, as EC2 drops it.
    // fidelity: documented(EC2 API Reference, CreateVpc: 100.68.0.18/18 is made 100.68.0.0/18)
    pub fn parse(text: &str) -> Option<Self> {
        let (address, bits) = text.split_once('/')?;
        let (base, bits) = (u32::from(address.parse::<Ipv4Addr>().ok()?), prefix_length(bits, 32)?);
        Some(Self { base: base & mask(bits), bits })
    }

    /// Whether a VPC or a subnet may have this size.
    // fidelity: documented(VPC User Guide, VPC CIDR blocks: between a /28 netmask and a /16 netmask)
    pub fn is_network_size(self) -> bool {
        (16..=28).contains(&self.bits)
    }

    /// The n-th part when cut into parts of `bits`.
    pub fn part(self, index: u32, bits: u8) -> Self {
        Self { base: self.base.wrapping_add(index << (32 - u32::from(bits))), bits }
    }

    /// Whether all of `other` lies in it.
    pub fn contains(self, other: Self) -> bool {
        self.bits <= other.bits && other.base & mask(self.bits) == self.base
    }

    /// Whether they share an address.
    pub fn overlaps(self, other: Self) -> bool {
        self.contains(other) || other.contains(self)
    }

    /// Where an address lies in it.
    pub(crate) fn offset(self, address: Ipv4Addr) -> Option<u32> {
        let address = u32::from(address);
        (address & mask(self.bits) == self.base).then(|| address - self.base)
    }

    pub(crate) fn address(self, offset: u32) -> Ipv4Addr {
        Ipv4Addr::from(self.base.wrapping_add(offset))
    }

    /// How many addresses there are.
    pub(crate) fn size(self) -> u32 {
        1u32.checked_shl(32 - u32::from(self.bits)).unwrap_or(u32::MAX)
    }
}

impl std::fmt::Display for Cidr {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/{}", Ipv4Addr::from(self.base), self.bits)
    }
}

impl Serialize for Cidr {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Cidr {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let expected = || serde::de::Error::custom(format!("{text} is not an IPv4 range such as 192.168.0.0/16"));
        Self::parse(&text).ok_or_else(expected)
    }
}

/// An IPv6 range in its canonical spelling.
pub(crate) fn canonical_ipv6(text: &str) -> Option<String> {
    let (address, bits) = text.split_once('/')?;
    let (base, bits) = (u128::from(address.parse::<Ipv6Addr>().ok()?), prefix_length(bits, 128)?);
    let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
    Some(format!("{}/{bits}", Ipv6Addr::from(base & mask)))
}

fn prefix_length(text: &str, maximum: u8) -> Option<u8> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|bits| digits && *bits <= maximum)
}

fn mask(bits: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_in_their_canonical_form() {
        let parsed = |text: &str| Cidr::parse(text).map(|cidr| cidr.to_string());
        assert_eq!(parsed("100.68.0.18/18").as_deref(), Some("100.68.0.0/18"));
        assert_eq!(parsed("1.2.3.4/0").as_deref(), Some("0.0.0.0/0"));
        assert_eq!(parsed("1.2.3.4/32").as_deref(), Some("1.2.3.4/32"));
        for wrong in ["1.2.3.4", "1.2.3.4/33", "1.2.3/24", "1.2.3.4/+8", "/8", "1.2.3.4/"] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
        assert_eq!(canonical_ipv6("2001:0DB8::1/32").as_deref(), Some("2001:db8::/32"));
        assert_eq!(canonical_ipv6("::/0").as_deref(), Some("::/0"));
        assert_eq!(canonical_ipv6("::/129"), None);
    }

    #[test]
    fn ranges_contain_and_overlap() {
        let cidr = |text| Cidr::parse(text).unwrap();
        let (vpc, subnet, other) = (cidr("10.0.0.0/16"), cidr("10.0.1.0/24"), cidr("10.1.0.0/24"));
        assert!(vpc.contains(subnet) && !subnet.contains(vpc) && !vpc.contains(other));
        assert!(subnet.overlaps(vpc) && !vpc.overlaps(other));
        assert_eq!(subnet.offset("10.0.1.7".parse().unwrap()), Some(7));
        assert_eq!(subnet.offset("10.0.2.7".parse().unwrap()), None);
    }
}
