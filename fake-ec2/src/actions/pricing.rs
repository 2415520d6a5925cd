//! Price List: GetProducts for EC2 on-demand compute.

use super::{integer, text, unknown_action};
use crate::cloud::Cloud;
use crate::cloud::catalogue::Offering;
use crate::cloud::ids::digits;
use crate::error::ApiError;
use crate::wire::pagination::{Bounds, Page};
use crate::wire::{Reply, Service};
use serde_json::{Value, json};

/// One product: an instance type under a tenancy.
struct Product<'a> {
    offering: &'a Offering,
    tenancy: &'static str,
    family: &'static str,
    price: f64,
}

// fidelity: documented(Price List Query API Reference, GetProducts: TERM_MATCH filters, 100 results); assumed: only Linux
// on-demand compute of this region exists, bare metal as shared and as dedicated.
pub(super) fn perform(cloud: &mut Cloud, action: &str, input: &Value) -> Result<Reply, ApiError> {
    if action != "GetProducts" {
        return Err(unknown_action(Service::Pricing, action));
    }
    if text(input, "ServiceCode") != Some("AmazonEC2") {
        return Err(ApiError::client("InvalidParameterException", "Only the service code AmazonEC2 is known here."));
    }
    let filters: Vec<(&str, &str)> = filters(input)?;
    let page = Page::new(
        integer(input, "MaxResults"),
        text(input, "NextToken"),
        Bounds { minimum: 1, maximum: 100, default: 100 },
    )
    .map_err(|error| ApiError::client("InvalidParameterException", error.message))?;
    let region = cloud.config.region.clone();
    let products = cloud.catalogue.offerings().iter().flat_map(|offering| products(cloud, offering));
    let chosen = products.filter(|product| {
        filters
            .iter()
            .all(|(field, value)| attribute(product, &region, field).is_some_and(|own| own.eq_ignore_ascii_case(value)))
    });
    let paged = page.cut(chosen, |product| format!("{}\u{1}{}", product.offering.instance_type.name, product.tenancy));
    let list: Vec<Value> =
        paged.items.iter().map(|product| Value::String(describe(product, &region).to_string())).collect();
    let mut answer = json!({"FormatVersion": "aws_v1", "PriceList": list});
    if let Some(next) = paged.next {
        answer["NextToken"] = json!(next);
    }
    Ok(Reply::Json(answer))
}

fn filters(input: &Value) -> Result<Vec<(&str, &str)>, ApiError> {
    let mut filters = Vec::new();
    for filter in input.get("Filters").and_then(Value::as_array).into_iter().flatten() {
        let (kind, field, value) = (text(filter, "Type"), text(filter, "Field"), text(filter, "Value"));
        match (kind, field, value) {
            (Some("TERM_MATCH" | "EQUALS"), Some(field), Some(value)) => filters.push((field, value)),
            _ => {
                return Err(ApiError::client(
                    "InvalidParameterException",
                    "A filter needs Type TERM_MATCH, Field and Value.",
                ));
            }
        }
    }
    Ok(filters)
}

/// In the order of tenancy names, so that pages keep their order.
fn products<'a>(cloud: &Cloud, offering: &'a Offering) -> Vec<Product<'a>> {
    let family = if offering.instance_type.bare_metal { "Compute Instance (bare metal)" } else { "Compute Instance" };
    let shared = cloud.on_demand_price(offering.instance_type.name);
    let dedicated = offering.dedicated.filter(|_| offering.instance_type.bare_metal);
    let prices = [("Dedicated", dedicated), ("Shared", shared)];
    prices
        .into_iter()
        .filter_map(|(tenancy, price)| Some(Product { offering, tenancy, family, price: price? }))
        .collect()
}

fn attribute<'a>(product: &Product<'a>, region: &'a str, field: &str) -> Option<&'a str> {
    Some(match field {
        "instanceType" => product.offering.instance_type.name,
        "regionCode" => region,
        "servicecode" | "serviceCode" | "ServiceCode" => "AmazonEC2",
        "tenancy" => product.tenancy,
        "productFamily" => product.family,
        "operatingSystem" => "Linux",
        "preInstalledSw" => "NA",
        "capacitystatus" => "Used",
        "marketoption" => "OnDemand",
        "locationType" => "AWS Region",
        "operation" => "RunInstances",
        "licenseModel" => "No License required",
        _ => return None,
    })
}

fn describe(product: &Product<'_>, region: &str) -> Value {
    let own = product.offering.instance_type;
    let sku = digits(0, &["sku", region, own.name, product.tenancy]).to_ascii_uppercase();
    let (term, dimension) = (format!("{sku}.JRTCKXETXF"), format!("{sku}.JRTCKXETXF.6YS6EN2CT7"));
    json!({
        "product": {
            "productFamily": product.family,
            "sku": sku,
            "attributes": {
                "instanceType": own.name,
                "regionCode": region,
                "servicecode": "AmazonEC2",
                "tenancy": product.tenancy,
                "operatingSystem": "Linux",
                "preInstalledSw": "NA",
                "capacitystatus": "Used",
                "marketoption": "OnDemand",
                "locationType": "AWS Region",
                "operation": "RunInstances",
                "vcpu": own.vcpus.to_string(),
                "memory": format!("{} GiB", own.memory_mib as f64 / 1024.0),
            },
        },
        "serviceCode": "AmazonEC2",
        "terms": {"OnDemand": {term: {"priceDimensions": {dimension: {
            "unit": "Hrs",
            "beginRange": "0",
            "endRange": "Inf",
            "pricePerUnit": {"USD": format!("{:.10}", product.price)},
        }}}}},
    })
}
