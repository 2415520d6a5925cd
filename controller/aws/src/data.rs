//! The embedded tables: interface and bandwidth limits, and prices for when the price list is out of reach. Each is sorted
//! text that is searched in place, so that start-up parses nothing.

static LIMITS: &str = include_str!("../data/limits.tsv");
static ON_DEMAND: &str = include_str!("../data/on-demand.tsv");

/// The order of the price columns; the first serves every region that has none of its own (spec §2.5, quirk Q28).
const PRICE_REGIONS: [&str; 6] =
    ["us-east-1", "us-east-2", "us-west-2", "eu-west-1", "ap-northeast-1", "ap-northeast-3"];

/// What the VPC limits table and the bandwidth table say about one type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Branch interfaces for pods with their own security groups; 0 when the type has none.
    pub(crate) branch_interfaces: u32,
    /// Sustained bandwidth in Mbit/s; `None` where AWS publishes only a burst figure.
    pub(crate) bandwidth_mbps: Option<u32>,
}

/// The limits of `instance_type`; zero and unknown for a type that is newer than the tables.
pub(crate) fn limits(instance_type: &str) -> Limits {
    let mut fields = fields(LIMITS, instance_type);
    Limits {
        branch_interfaces: fields.next().and_then(|text| text.parse().ok()).unwrap_or(0),
        bandwidth_mbps: fields.next().and_then(|text| text.parse().ok()),
    }
}

/// The embedded on-demand price of `instance_type` in `region`, in US dollars per hour.
pub(crate) fn on_demand_price(region: &str, instance_type: &str) -> Option<f64> {
    let column = PRICE_REGIONS.iter().position(|known| *known == region).unwrap_or(0);
    fields(ON_DEMAND, instance_type).nth(column)?.parse().ok()
}

/// The fields behind `key`; none when the key is missing.
fn fields(table: &'static str, key: &str) -> impl Iterator<Item = &'static str> {
    let line = find(table, key).unwrap_or("");
    line.split('\t').skip(1)
}

/// Bisects the sorted lines of `table` for the one whose first field is `key`. Comment lines start with `#`, which sorts
/// before every name.
fn find(table: &'static str, key: &str) -> Option<&'static str> {
    let (mut low, mut high) = (0, table.len());
    while low < high {
        let middle = (low + high) / 2;
        let start = table[..middle].rfind('\n').map_or(0, |newline| newline + 1);
        let end = table[middle..].find('\n').map_or(table.len(), |newline| middle + newline);
        let line = &table[start..end];
        match line.split('\t').next().unwrap_or("").cmp(key) {
            _ if line.starts_with('#') => low = end + 1,
            std::cmp::Ordering::Equal => return Some(line),
            std::cmp::Ordering::Less => low = end + 1,
            std::cmp::Ordering::Greater => high = start,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_every_table_is_found() {
        for table in [LIMITS, ON_DEMAND] {
            let names =
                table.lines().filter(|line| !line.starts_with('#')).map(|line| line.split('\t').next().unwrap());
            assert!(names.clone().count() > 1_300);
            for name in names {
                assert!(find(table, name).is_some_and(|line| line.starts_with(name)), "{name}");
            }
            for missing in ["", "a", "m5.larg", "m5.largee", "zz.large"] {
                assert_eq!(find(table, missing), None, "{missing}");
            }
        }
    }

    #[test]
    fn known_figures_are_read() {
        assert_eq!(limits("m5.large"), Limits { branch_interfaces: 9, bandwidth_mbps: Some(750) });
        assert_eq!(limits("t3.micro").branch_interfaces, 0, "t3 has no trunk interface");
        assert_eq!(limits("x9.future"), Limits::default());
        assert_eq!(on_demand_price("us-west-2", "m5.large"), Some(0.096));
        assert_eq!(on_demand_price("sa-east-1", "m5.large"), Some(0.096), "an unknown region starts with us-east-1");
        assert_eq!(on_demand_price("us-west-2", "mac2.metal"), None);
    }
}
