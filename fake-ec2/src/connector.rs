//! The AWS SDK's HTTP client, in process: a request goes straight to [`FakeEc2::handle`], with no socket and no thread.

use crate::server::{Exchange, FakeEc2};
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use http_body_util::BodyExt;
use std::fmt;

/// What [`FakeEc2::http_client`] hands out. It sends no `Date` header, so that the SDK does not correct its clock by it.
#[derive(Clone)]
pub struct InProcessClient(FakeEc2);

impl InProcessClient {
    pub(crate) fn new(ec2: FakeEc2) -> Self {
        Self(ec2)
    }
}

impl fmt::Debug for InProcessClient {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("InProcessClient")
    }
}

impl HttpClient for InProcessClient {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

impl HttpConnector for InProcessClient {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let ec2 = self.0.clone();
        HttpConnectorFuture::new(async move {
            let request = request.try_into_http1x().map_err(|error| ConnectorError::user(error.into()))?;
            let (parts, body) = request.into_parts();
            // Read to its end even where it is not needed: the SDK watches uploads for progress.
            let body = body.collect().await.map_err(ConnectorError::user)?.to_bytes();
            match ec2.exchange(http::Request::from_parts(parts, body)).await {
                Exchange::Answered(response) => {
                    let response = response.map(SdkBody::from);
                    HttpResponse::try_from(response).map_err(|error| ConnectorError::other(error.into(), None))
                }
                Exchange::Truncated(_) => {
                    Err(ConnectorError::io("the connection was reset in the middle of the answer".into()))
                }
                Exchange::Lost => Err(ConnectorError::io("the connection was reset".into())),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ApiError, Config, FaultRule, Outcome};
    use controller_clock::Clock;

    fn request() -> HttpRequest {
        let mut request = HttpRequest::new(SdkBody::from("Action=DescribeVpcs&Version=2016-11-15"));
        request.set_method("POST").unwrap();
        request.set_uri("https://ec2.us-west-2.amazonaws.com/").unwrap();
        request
    }

    #[tokio::test(start_paused = true)]
    async fn requests_of_the_sdk_are_answered_without_a_date() {
        let client = FakeEc2::new(Config::default(), Clock::virtual_from(jiff::Timestamp::UNIX_EPOCH)).http_client();
        let response = client.call(request()).await.unwrap();
        assert_eq!(response.status().as_u16(), 200);
        assert!(response.headers().get("date").is_none());
        assert!(response.body().bytes().unwrap().starts_with(b"<?xml"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_reply_is_a_broken_connection() {
        let ec2 = FakeEc2::new(Config::default(), Clock::virtual_from(jiff::Timestamp::UNIX_EPOCH));
        let rule = FaultRule::error("DescribeVpcs", ApiError::client("", ""));
        ec2.cloud().fault(FaultRule { outcome: Outcome::LostReply, ..rule });
        assert!(ec2.http_client().call(request()).await.unwrap_err().is_io());
    }
}
