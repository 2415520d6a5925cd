//! Where the controller itself runs. On a node of its own making it would one day take away the ground it stands on, so
//! that is told; upstream leaves it to the affinity of its chart.
//!
//! The node's name comes from the environment variable `NODE_NAME` (downward API, `spec.nodeName`). Without it nothing is
//! watched here.

use super::Context;
use crate::events::{Event, reference};
use crate::mirror::{Kind, pool_label};
use k8s_openapi::api::core::v1::Node;

/// Follows the controller's own node for as long as the future lives.
pub(crate) async fn run(context: Context) {
    let Some(own) = context.settings.own_node.clone() else { return std::future::pending().await };
    let mut changes = context.mirror.subscribe();
    let mut told = None;
    loop {
        let batch = changes.next().await;
        if !batch.iter().any(|change| change.kind == Kind::Node && change.name == own) {
            continue;
        }
        let node = context.mirror.node(&own);
        let pool = node.as_deref().and_then(|node| pool_label(node.metadata.labels.as_ref()));
        // Once for each time it becomes so: a node changes every few seconds, and the mistake stays the same.
        if pool != told
            && let (Some(node), Some(pool)) = (&node, &pool)
        {
            tell(&context, node, pool);
        }
        told = pool;
    }
}

fn tell(context: &Context, node: &Node, pool: &str) {
    tracing::warn!(
        Node = node.metadata.name,
        NodePool = pool,
        "the controller runs on a node that it manages and may remove, move it to a node group or to Fargate: require \
         karpenter.sh/nodepool DoesNotExist in the node affinity of its pods"
    );
    let message = format!(
        "The controller runs on this node of its own NodePool {pool} and may remove it under itself. Move the controller \
         to a node group or to Fargate: require karpenter.sh/nodepool DoesNotExist in the node affinity of its pods"
    );
    context.events.publish(Event::warning(reference(node), "ControllerOnManagedNode", message));
}
