//! Prices: on-demand from the price list, spot from the spot price history, the embedded table until they answer.

use crate::data;
use crate::error::AwsError;
use aws_sdk_ec2::types::InstanceType as SdkInstanceType;
use aws_sdk_pricing::types::{Filter, FilterType};
use aws_smithy_types::DateTime;
use jiff::Timestamp;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

/// What every type costs, as last heard.
#[derive(Debug)]
pub(crate) struct Pricing {
    region: String,
    prices: RwLock<Prices>,
}

#[derive(Debug, Default)]
struct Prices {
    on_demand: BTreeMap<String, f64>,
    /// By instance type, then zone. Empty until the first answer.
    spot: BTreeMap<String, BTreeMap<String, f64>>,
    revision: u64,
}

impl Pricing {
    pub(crate) fn new(region: &str) -> Self {
        Self { region: region.to_owned(), prices: RwLock::default() }
    }

    /// The list price of `instance_type`.
    pub(crate) fn on_demand(&self, instance_type: &str) -> Option<f64> {
        let prices = self.read();
        let heard = prices.on_demand.get(instance_type).copied();
        heard.or_else(|| data::on_demand_price(&self.region, instance_type))
    }

    /// The spot price of `instance_type` in `zone`; before any spot price is known, the list price (quirk Q27).
    pub(crate) fn spot(&self, instance_type: &str, zone: &str) -> Option<f64> {
        let prices = self.read();
        if prices.spot.is_empty() {
            drop(prices);
            return self.on_demand(instance_type);
        }
        prices.spot.get(instance_type)?.get(zone).copied()
    }

    /// A number that changes with the prices.
    pub(crate) fn revision(&self) -> u64 {
        self.read().revision
    }

    /// Reads the price list of on-demand instances. Both shared and bare-metal prices must be there, or nothing is
    /// believed.
    pub(crate) async fn refresh_on_demand(&self, client: &aws_sdk_pricing::Client) -> Result<(), AwsError> {
        let (shared, metal) = futures::join!(
            self.products(client, "Shared", "Compute Instance"),
            self.products(client, "Dedicated", "Compute Instance (bare metal)"),
        );
        let (shared, metal) = (shared?, metal?);
        if shared.is_empty() || metal.is_empty() {
            return Err(AwsError::of_answer("Pricing", "GetProducts", "NoPrices", "no on-demand pricing found"));
        }
        let mut prices = self.prices.write().unwrap_or_else(PoisonError::into_inner);
        prices.on_demand.extend(shared.into_iter().chain(metal));
        prices.revision += 1;
        tracing::debug!(instance_type_count = prices.on_demand.len(), "updated on-demand pricing");
        Ok(())
    }

    async fn products(
        &self,
        client: &aws_sdk_pricing::Client,
        tenancy: &str,
        product_family: &str,
    ) -> Result<BTreeMap<String, f64>, AwsError> {
        let filters = [
            ("regionCode", self.region.as_str()),
            ("serviceCode", "AmazonEC2"),
            ("preInstalledSw", "NA"),
            ("operatingSystem", "Linux"),
            ("capacitystatus", "Used"),
            ("marketoption", "OnDemand"),
            ("tenancy", tenancy),
            ("productFamily", product_family),
        ];
        let filters = filters.map(|(field, value)| {
            Filter::builder()
                .r#type(FilterType::TermMatch)
                .field(field)
                .value(value)
                .build()
                .expect("every member is set")
        });
        let request =
            client.get_products().service_code("AmazonEC2").set_filters(Some(filters.to_vec())).max_results(100);
        let mut pages = request.into_paginator().send();
        let currency = if self.region.starts_with("cn-") { "CNY" } else { "USD" };
        let mut prices = BTreeMap::new();
        while let Some(page) = pages.next().await {
            let page = page.map_err(|error| AwsError::new("Pricing", "GetProducts", error))?;
            prices.extend(page.price_list().iter().filter_map(|text| read_product(text, currency)));
        }
        Ok(prices)
    }

    /// Reads the current spot prices. Pairs that are missing keep their last price.
    pub(crate) async fn refresh_spot(&self, client: &aws_sdk_ec2::Client, now: Timestamp) -> Result<(), AwsError> {
        let request = client
            .describe_spot_price_history()
            .product_descriptions("Linux/UNIX")
            .product_descriptions("Linux/UNIX (Amazon VPC)")
            .start_time(DateTime::from_secs(now.as_second()))
            .max_results(2000);
        let mut pages = request.into_paginator().send();
        let mut heard: BTreeMap<String, BTreeMap<String, f64>> = BTreeMap::new();
        while let Some(page) = pages.next().await {
            let page = page.map_err(|error| AwsError::new("EC2", "DescribeSpotPriceHistory", error))?;
            for record in page.spot_price_history() {
                let price = record.spot_price().and_then(|text| text.parse::<f64>().ok());
                let place = record.instance_type().map(SdkInstanceType::as_str).zip(record.availability_zone());
                let (Some(price), Some((instance_type, zone)), Some(_)) = (price, place, record.timestamp()) else {
                    tracing::debug!(?record, "skipping incomplete spot price");
                    continue;
                };
                heard.entry(instance_type.to_owned()).or_default().insert(zone.to_owned(), price);
            }
        }
        if heard.is_empty() {
            return Err(AwsError::of_answer("EC2", "DescribeSpotPriceHistory", "NoPrices", "no spot pricing found"));
        }
        let mut prices = self.prices.write().unwrap_or_else(PoisonError::into_inner);
        let (types, offerings) = (heard.len(), heard.values().map(BTreeMap::len).sum::<usize>());
        for (instance_type, zones) in heard {
            prices.spot.entry(instance_type).or_default().extend(zones);
        }
        prices.revision += 1;
        tracing::debug!(
            instance_type_count = types,
            offering_count = offerings,
            "updated spot pricing with instance types and offerings"
        );
        Ok(())
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Prices> {
        self.prices.read().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Deserialize)]
struct PriceListItem {
    product: Product,
    terms: Terms,
}

#[derive(Deserialize)]
struct Product {
    attributes: Attributes,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Attributes {
    instance_type: String,
}

#[derive(Deserialize)]
struct Terms {
    #[serde(rename = "OnDemand", default)]
    on_demand: BTreeMap<String, Term>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Term {
    price_dimensions: BTreeMap<String, Dimension>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Dimension {
    price_per_unit: BTreeMap<String, String>,
}

/// Reads one element of a price list. `None` for what is no instance, or has no price, or the price zero.
fn read_product(text: &str, currency: &str) -> Option<(String, f64)> {
    let item: PriceListItem = serde_json::from_str(text).ok()?;
    let dimensions = item.terms.on_demand.values().flat_map(|term| term.price_dimensions.values());
    let mut prices = dimensions.filter_map(|dimension| dimension.price_per_unit.get(currency)?.parse::<f64>().ok());
    let price = prices.rfind(|price| *price > 0.0)?;
    Some((item.product.attributes.instance_type, price))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_list_element_is_read() {
        let text = r#"{"product":{"attributes":{"instanceType":"m5.large","vcpu":"2"}},"terms":{"OnDemand":{"T":
            {"priceDimensions":{"D":{"unit":"Hrs","pricePerUnit":{"USD":"0.0960000000"}}}}}}}"#;
        assert_eq!(read_product(text, "USD"), Some(("m5.large".to_owned(), 0.096)));
        assert_eq!(read_product(text, "CNY"), None);
        assert_eq!(read_product(&text.replace("0.0960000000", "0.0000000000"), "USD"), None);
        assert_eq!(read_product("{}", "USD"), None);
    }

    #[test]
    fn before_any_answer_prices_come_from_the_embedded_table_and_spot_costs_as_much() {
        let pricing = Pricing::new("us-west-2");
        assert_eq!(pricing.on_demand("m5.large"), Some(0.096));
        assert_eq!(pricing.spot("m5.large", "us-west-2a"), Some(0.096));
        assert_eq!(pricing.on_demand("x9.future"), None);
    }

    #[test]
    fn once_spot_prices_are_known_a_missing_pair_has_none() {
        let pricing = Pricing::new("us-west-2");
        let zones = BTreeMap::from([("us-west-2a".to_owned(), 0.03)]);
        pricing.prices.write().unwrap().spot.insert("m5.large".to_owned(), zones);
        assert_eq!(pricing.spot("m5.large", "us-west-2a"), Some(0.03));
        assert_eq!(pricing.spot("m5.large", "us-west-2b"), None);
        assert_eq!(pricing.spot("c5.large", "us-west-2a"), None);
    }
}
