//! DescribeSpotPriceHistory.

use super::finish;
use crate::cloud::Cloud;
use crate::cloud::filter::Test;
use crate::error::ApiError;
use crate::wire::pagination::{Bounds, Page};
use crate::wire::query::Query;
use crate::wire::xml::{Xml, timestamp};
use jiff::{SignedDuration, Timestamp};

/// How far back prices are told.
const KEPT: SignedDuration = SignedDuration::from_hours(90 * 24);
/// The names under which prices of Linux are asked for; they are answered under the first.
const PRODUCTS: [&str; 2] = ["Linux/UNIX", "Linux/UNIX (Amazon VPC)"];

// fidelity: documented(EC2 API Reference, DescribeSpotPriceHistory: every change within the period, and the price that held
// when it began; the past 90 days); the catalogue has prices of Linux alone.
pub(super) fn describe_spot_price_history(
    cloud: &mut Cloud,
    now: Timestamp,
    query: &Query<'_>,
) -> Result<String, ApiError> {
    let cloud = &*cloud;
    let (types, products, filters) = (query.list("InstanceType"), query.list("ProductDescription"), query.filters()?);
    let (zone, zone_id) = (query.text("AvailabilityZone"), query.text("AvailabilityZoneId"));
    let (start, end) = (query.time("StartTime")?, query.time("EndTime")?);
    if start.zip(end).is_some_and(|(start, end)| start > end) {
        return Err(ApiError::client("InvalidParameterCombination", "StartTime is after EndTime."));
    }
    if zone.is_some() && zone_id.is_some() {
        let message = "AvailabilityZone and AvailabilityZoneId can't be specified together; specify one of them.";
        return Err(ApiError::client("InvalidParameterCombination", message));
    }
    let earliest = now.checked_sub(KEPT).unwrap_or(Timestamp::MIN);
    let (start, end) = (start.map_or(earliest, |start| start.max(earliest)), end.unwrap_or(now).min(now));
    // fidelity: observed(2026-08, requests of Karpenter v1.14): it asks for 2000 and is answered at most 1000 a page.
    let size = query.number::<i64>("MaxResults")?.map(|size| size.clamp(1, 1000));
    let page = Page::new(size, query.text("NextToken"), Bounds { minimum: 1, maximum: 1000, default: 1000 })?;
    finish(query)?;
    filters.check(&[
        "availability-zone",
        "availability-zone-id",
        "instance-type",
        "product-description",
        "spot-price",
        "timestamp",
    ])?;
    let linux = products.is_empty() || products.iter().any(|product| PRODUCTS.contains(product));
    let rows = cloud.catalogue.offerings().iter().filter(|_| linux).flat_map(|offering| {
        let name = offering.instance_type.name;
        let zones = offering.zones.iter().copied();
        zones.flat_map(move |zone| {
            within(cloud.spot_price_history(name, zone), start, end)
                .map(move |(price, since)| (name, zone, price, since))
        })
    });
    type Row<'a> = (&'a str, &'a str, f64, Timestamp);
    let id_of = |name: &str| cloud.catalogue.zone(name).map_or("", |zone| zone.id);
    let attribute = |(name, zone, price, since): &Row<'_>, filter: &str, test: Test<'_>| match filter {
        "instance-type" => test(name),
        "availability-zone" => test(zone),
        "availability-zone-id" => test(id_of(zone)),
        "product-description" => PRODUCTS.iter().any(|product| test(product)),
        "spot-price" => test(&price_text(*price)),
        "timestamp" => test(&timestamp(*since)),
        _ => false,
    };
    let chosen = rows
        .filter(|(name, ..)| types.is_empty() || types.contains(name))
        .filter(|(_, own, ..)| zone.is_none_or(|zone| zone == *own) && zone_id.is_none_or(|id| id == id_of(own)))
        .filter(|row| filters.matches(None, |name, test| attribute(row, name, test)));
    // The latest price of a pool comes first.
    let paged = page.cut(chosen, |(name, zone, _, since)| {
        format!("{name}\u{1}{zone}\u{1}{:020}", i64::MAX - since.as_millisecond())
    });
    let mut xml = Xml::new();
    xml.list("spotPriceHistorySet", paged.items, |xml, (name, zone, price, since)| {
        xml.text("instanceType", name);
        xml.text("productDescription", PRODUCTS[0]);
        xml.text("spotPrice", price_text(price));
        xml.time("timestamp", since);
        xml.text("availabilityZone", zone);
        xml.text("availabilityZoneId", id_of(zone));
    });
    xml.text("nextToken", paged.next.unwrap_or_default());
    Ok(xml.into_string())
}

/// The changes within a period and the price that held when it began, the latest first.
fn within(changes: Vec<(f64, Timestamp)>, start: Timestamp, end: Timestamp) -> impl Iterator<Item = (f64, Timestamp)> {
    let mut begun = false;
    changes.into_iter().rev().filter(move |(_, since)| *since <= end).take_while(move |(_, since)| {
        let earlier = begun;
        begun = *since <= start;
        !earlier
    })
}

fn price_text(price: f64) -> String {
    format!("{price:.6}")
}
