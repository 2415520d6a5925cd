//! Health, readiness and metrics over HTTP (core spec §9.5). Started only where an address is set.

use crate::metrics::Metrics;
use axum::Router;
use axum::http::{StatusCode, header};
use axum::routing::get;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::net::TcpListener;

/// Whether the controller can do its work: set once AWS has answered and, on the leader, once every kind has been listed.
#[derive(Clone, Default)]
pub(crate) struct Readiness(Arc<AtomicBool>);

impl Readiness {
    /// Ready, or not any more.
    pub(crate) fn set(&self, is_ready: bool) {
        self.0.store(is_ready, Ordering::Relaxed);
    }

    fn answer(&self) -> (StatusCode, &'static str) {
        if self.0.load(Ordering::Relaxed) {
            (StatusCode::OK, "ok")
        } else {
            (StatusCode::INTERNAL_SERVER_ERROR, "failed to sync caches")
        }
    }
}

/// Serves `/healthz` and `/readyz` for as long as the future lives.
pub(crate) async fn health(address: SocketAddr, readiness: Readiness) -> anyhow::Result<()> {
    serve(address, health_routes(readiness)).await
}

/// Serves `/metrics` for as long as the future lives.
pub(crate) async fn metrics(address: SocketAddr, metrics: Arc<Metrics>) -> anyhow::Result<()> {
    serve(address, metrics_routes(metrics)).await
}

async fn serve(address: SocketAddr, routes: Router) -> anyhow::Result<()> {
    let listener =
        TcpListener::bind(address).await.map_err(|error| anyhow::anyhow!("cannot listen on {address}: {error}"))?;
    Ok(axum::serve(listener, routes).await?)
}

fn health_routes(readiness: Readiness) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(move || async move { readiness.answer() }))
}

fn metrics_routes(metrics: Arc<Metrics>) -> Router {
    const TEXT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Router::new().route("/metrics", get(move || async move { ([(header::CONTENT_TYPE, TEXT)], metrics.text()) }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use tower::ServiceExt as _;

    async fn ask(routes: Router, path: &str) -> StatusCode {
        let request = http::Request::get(path).body(Body::empty()).unwrap();
        routes.oneshot(request).await.unwrap().status()
    }

    #[tokio::test]
    async fn readiness_follows_the_controller_and_health_does_not() {
        let readiness = Readiness::default();
        assert_eq!(ask(health_routes(readiness.clone()), "/readyz").await, StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(ask(health_routes(readiness.clone()), "/healthz").await, StatusCode::OK);
        readiness.set(true);
        assert_eq!(ask(health_routes(readiness), "/readyz").await, StatusCode::OK);
    }

    #[tokio::test]
    async fn metrics_are_served() {
        assert_eq!(ask(metrics_routes(Arc::new(Metrics::new())), "/metrics").await, StatusCode::OK);
    }
}
