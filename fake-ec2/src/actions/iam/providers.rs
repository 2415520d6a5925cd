//! OpenID Connect providers.

use super::{finish, write_tags};
use crate::cloud::Cloud;
use crate::cloud::roles::NewOidcProvider;
use crate::error::ApiError;
use crate::wire::query::Query;
use crate::wire::xml::{Xml, timestamp};
use jiff::Timestamp;

pub(super) fn create(cloud: &mut Cloud, now: Timestamp, query: &Query<'_>, xml: &mut Xml) -> Result<(), ApiError> {
    // An empty list travels as its bare name.
    for list in ["ClientIDList", "Tags", "ThumbprintList"] {
        query.text(list);
    }
    let texts = |name: &str| query.list(name).into_iter().map(str::to_owned);
    let new = NewOidcProvider {
        url: query.required("Url")?.to_owned(),
        client_ids: texts("ClientIDList.member").collect(),
        thumbprints: texts("ThumbprintList.member").collect(),
        tags: query.tags("Tags.member")?,
    };
    finish(query)?;
    let provider = cloud.create_oidc_provider(now, new)?;
    xml.text("OpenIDConnectProviderArn", &provider.arn);
    write_tags(xml, &provider.tags);
    Ok(())
}

pub(super) fn get(cloud: &Cloud, query: &Query<'_>, xml: &mut Xml) -> Result<(), ApiError> {
    let arn = query.required("OpenIDConnectProviderArn")?;
    finish(query)?;
    let provider = cloud.oidc_provider(arn)?;
    xml.text("Url", &provider.host_and_path);
    xml.element("ClientIDList", |xml| provider.client_ids.iter().for_each(|id| xml.text("member", id)));
    xml.element("ThumbprintList", |xml| provider.thumbprints.iter().for_each(|print| xml.text("member", print)));
    xml.text("CreateDate", timestamp(provider.created_at));
    write_tags(xml, &provider.tags);
    Ok(())
}

pub(super) fn list(cloud: &Cloud, query: &Query<'_>, xml: &mut Xml) -> Result<(), ApiError> {
    finish(query)?;
    let arns = cloud.identity.oidc_providers.keys();
    xml.list_of("OpenIDConnectProviderList", "member", arns, |xml, arn| xml.text("Arn", arn));
    Ok(())
}

// fidelity: documented(IAM API Reference, DeleteOpenIDConnectProvider: deleting what does not exist succeeds)
pub(super) fn delete(cloud: &mut Cloud, query: &Query<'_>) -> Result<(), ApiError> {
    let arn = query.required("OpenIDConnectProviderArn")?;
    finish(query)?;
    cloud.identity.oidc_providers.remove(arn);
    Ok(())
}
