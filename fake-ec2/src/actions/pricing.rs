//! Price List: EC2 on-demand compute.

use super::{page, text, unknown_action};
use crate::cloud::Cloud;
use crate::cloud::catalogue::Offering;
use crate::cloud::ids::digits;
use crate::error::ApiError;
use crate::wire::pagination::{Bounds, Page};
use crate::wire::{Reply, Service};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::BTreeSet;

/// One product: an instance type under a tenancy.
struct Product<'a> {
    offering: &'a Offering,
    tenancy: &'static str,
    family: &'static str,
    price: f64,
}

/// What products are asked by and described with.
const ATTRIBUTES: [&str; 14] = [
    "capacitystatus",
    "instanceType",
    "licenseModel",
    "locationType",
    "marketoption",
    "memory",
    "operatingSystem",
    "operation",
    "preInstalledSw",
    "productFamily",
    "regionCode",
    "servicecode",
    "tenancy",
    "vcpu",
];

// fidelity: documented(Price List Query API Reference: each action); assumed: only Linux on-demand compute of this region
// exists, bare metal as shared and as dedicated.
pub(super) fn perform(cloud: &mut Cloud, action: &str, input: &Value) -> Result<Reply, ApiError> {
    let value = match action {
        "DescribeServices" => describe_services(input)?,
        "GetAttributeValues" => get_attribute_values(cloud, input)?,
        "GetProducts" => get_products(cloud, input)?,
        _ => return Err(unknown_action(Service::Pricing, action)),
    };
    Ok(Reply::Json(value))
}

fn describe_services(input: &Value) -> Result<Value, ApiError> {
    if input.get("ServiceCode").is_some() {
        check_service(input)?;
    }
    check_format(input)?;
    let page = page_of(input, 100)?;
    let paged = page.cut(["AmazonEC2"], |code| (*code).to_owned());
    let services: Vec<Value> =
        paged.items.iter().map(|code| json!({"ServiceCode": code, "AttributeNames": ATTRIBUTES})).collect();
    Ok(with_next(json!({"FormatVersion": "aws_v1", "Services": services}), paged.next))
}

fn get_attribute_values(cloud: &Cloud, input: &Value) -> Result<Value, ApiError> {
    check_service(input)?;
    let name = text(input, "AttributeName").unwrap_or_default();
    if !ATTRIBUTES.contains(&name) {
        return Err(refuse(format!("Attribute {name} is not one of the service: {}.", ATTRIBUTES.join(", "))));
    }
    let region = cloud.config.region.as_str();
    let products = cloud.catalogue.offerings().iter().flat_map(|offering| products(cloud, offering));
    let values: BTreeSet<String> =
        products.filter_map(|product| Some(attribute(&product, region, name)?.into_owned())).collect();
    let paged = page_of(input, 10_000)?.cut(values, String::clone);
    let values: Vec<Value> = paged.items.iter().map(|value| json!({"Value": value})).collect();
    Ok(with_next(json!({"AttributeValues": values}), paged.next))
}

fn get_products(cloud: &Cloud, input: &Value) -> Result<Value, ApiError> {
    check_service(input)?;
    check_format(input)?;
    let filters = filters(input)?;
    let page = page_of(input, 100)?;
    let region = cloud.config.region.as_str();
    let products = cloud.catalogue.offerings().iter().flat_map(|offering| products(cloud, offering));
    let chosen = products.filter(|product| {
        filters.iter().all(|filter| attribute(product, region, filter.field).is_some_and(|own| filter.matches(&own)))
    });
    let paged = page.cut(chosen, |product| format!("{}\u{1}{}", product.offering.instance_type.name, product.tenancy));
    let list: Vec<Value> =
        paged.items.iter().map(|product| Value::String(describe(product, region).to_string())).collect();
    Ok(with_next(json!({"FormatVersion": "aws_v1", "PriceList": list}), paged.next))
}

fn with_next(mut answer: Value, next: Option<String>) -> Value {
    if let Some(next) = next {
        answer["NextToken"] = json!(next);
    }
    answer
}

fn page_of(input: &Value, maximum: usize) -> Result<Page, ApiError> {
    let bounds = Bounds { minimum: 1, maximum, default: 100 };
    page(input, ["MaxResults", "NextToken"], bounds, ["InvalidParameterException", "InvalidNextTokenException"])
}

fn check_service(input: &Value) -> Result<(), ApiError> {
    match text(input, "ServiceCode") {
        Some("AmazonEC2") => Ok(()),
        _ => Err(refuse("Only the service code AmazonEC2 is known here.")),
    }
}

fn check_format(input: &Value) -> Result<(), ApiError> {
    match text(input, "FormatVersion") {
        None | Some("aws_v1") => Ok(()),
        Some(other) => Err(refuse(format!("FormatVersion {other} is not valid; it must be aws_v1."))),
    }
}

fn refuse(message: impl Into<String>) -> ApiError {
    ApiError::client("InvalidParameterException", message)
}

/// One condition on products.
struct Filter<'a> {
    kind: &'a str,
    field: &'a str,
    value: &'a str,
}

impl Filter<'_> {
    // fidelity: documented(Price List Query API Reference, Filter: the types); assumed: case is ignored
    fn matches(&self, own: &str) -> bool {
        let mut listed = self.value.split(',').map(str::trim);
        match self.kind {
            "CONTAINS" => own.to_ascii_lowercase().contains(&self.value.to_ascii_lowercase()),
            "ANY_OF" => listed.any(|value| own.eq_ignore_ascii_case(value)),
            "NONE_OF" => !listed.any(|value| own.eq_ignore_ascii_case(value)),
            _ => own.eq_ignore_ascii_case(self.value),
        }
    }
}

fn filters(input: &Value) -> Result<Vec<Filter<'_>>, ApiError> {
    let given = input.get("Filters").and_then(Value::as_array).into_iter().flatten();
    let filters: Vec<Filter<'_>> = given
        .map(|filter| match (text(filter, "Type"), text(filter, "Field"), text(filter, "Value")) {
            (Some(kind @ ("TERM_MATCH" | "EQUALS" | "CONTAINS" | "ANY_OF" | "NONE_OF")), Some(field), Some(value)) => {
                Ok(Filter { kind, field, value })
            }
            _ => Err(refuse("A filter needs Type (TERM_MATCH, EQUALS, CONTAINS, ANY_OF or NONE_OF), Field and Value.")),
        })
        .collect::<Result<_, _>>()?;
    match filters.len() > 50 {
        true => Err(refuse("At most 50 filters can be given.")),
        false => Ok(filters),
    }
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

fn attribute<'a>(product: &Product<'a>, region: &'a str, field: &str) -> Option<Cow<'a, str>> {
    let own = product.offering.instance_type;
    Some(Cow::Borrowed(match field {
        "instanceType" => own.name,
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
        "vcpu" => return Some(own.vcpus.to_string().into()),
        "memory" => return Some(format!("{} GiB", own.memory_mib as f64 / 1024.0).into()),
        _ => return None,
    }))
}

fn describe(product: &Product<'_>, region: &str) -> Value {
    let own = product.offering.instance_type;
    let sku = digits(0, &["sku", region, own.name, product.tenancy]).to_ascii_uppercase();
    let (term, dimension) = (format!("{sku}.JRTCKXETXF"), format!("{sku}.JRTCKXETXF.6YS6EN2CT7"));
    // The family stands beside the attributes.
    let names = ATTRIBUTES.iter().filter(|name| **name != "productFamily");
    let attributes: Map<String, Value> =
        names.filter_map(|name| Some(((*name).to_owned(), json!(attribute(product, region, name)?)))).collect();
    json!({
        "product": {"productFamily": product.family, "sku": sku, "attributes": attributes},
        "serviceCode": "AmazonEC2",
        "terms": {"OnDemand": {term: {"priceDimensions": {dimension: {
            "unit": "Hrs",
            "beginRange": "0",
            "endRange": "Inf",
            "pricePerUnit": {"USD": format!("{:.10}", product.price)},
        }}}}},
    })
}
