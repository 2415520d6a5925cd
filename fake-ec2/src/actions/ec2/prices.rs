//! DescribeSpotPriceHistory.

use super::finish;
use crate::cloud::Cloud;
use crate::cloud::filter::Test;
use crate::error::ApiError;
use crate::wire::pagination::{Bounds, Page};
use crate::wire::query::Query;
use crate::wire::xml::{Xml, timestamp};
use jiff::Timestamp;

// fidelity: documented(EC2 API Reference, DescribeSpotPriceHistory); assumed: only the present price is kept, and only for
// Linux, so a period in the past answers what holds at its end.
pub(super) fn describe_spot_price_history(
    cloud: &mut Cloud,
    now: Timestamp,
    query: &Query<'_>,
) -> Result<String, ApiError> {
    let cloud = &*cloud;
    let (types, products, filters) = (query.list("InstanceType"), query.list("ProductDescription"), query.filters()?);
    let (zone, zone_id) = (query.text("AvailabilityZone"), query.text("AvailabilityZoneId"));
    query.time("StartTime")?;
    let end = query.time("EndTime")?;
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
    const PRODUCT: &str = "Linux/UNIX";
    let linux = products.is_empty() || products.iter().any(|product| product.starts_with(PRODUCT));
    let rows = cloud.catalogue.offerings().iter().filter(|_| linux).flat_map(|offering| {
        let name = offering.instance_type.name;
        let zones = offering.zones.iter().copied();
        zones.filter_map(move |zone| cloud.spot_price(name, zone).map(|(price, since)| (name, zone, price, since)))
    });
    type Row<'a> = (&'a str, &'a str, f64, Timestamp);
    let id_of = |name: &str| cloud.catalogue.zone(name).map_or("", |zone| zone.id);
    let attribute = |(name, zone, price, since): &Row<'_>, filter: &str, test: Test<'_>| match filter {
        "instance-type" => test(name),
        "availability-zone" => test(zone),
        "availability-zone-id" => test(id_of(zone)),
        "product-description" => test(PRODUCT),
        "spot-price" => test(&price_text(*price)),
        "timestamp" => test(&timestamp(*since)),
        _ => false,
    };
    let chosen = rows
        .filter(|(name, ..)| types.is_empty() || types.contains(name))
        .filter(|(_, own, ..)| zone.is_none_or(|zone| zone == *own) && zone_id.is_none_or(|id| id == id_of(own)))
        .filter(|(.., since)| *since <= end.unwrap_or(now))
        .filter(|row| filters.matches(None, |name, test| attribute(row, name, test)));
    let paged = page.cut(chosen, |(name, zone, ..)| format!("{name}\u{1}{zone}"));
    let mut xml = Xml::new();
    xml.list("spotPriceHistorySet", paged.items, |xml, (name, zone, price, since)| {
        xml.text("instanceType", name);
        xml.text("productDescription", PRODUCT);
        xml.text("spotPrice", price_text(price));
        xml.time("timestamp", since);
        xml.text("availabilityZone", zone);
        xml.text("availabilityZoneId", id_of(zone));
    });
    xml.text("nextToken", paged.next.unwrap_or_default());
    Ok(xml.into_string())
}

fn price_text(price: f64) -> String {
    format!("{price:.6}")
}
