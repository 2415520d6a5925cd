//! Setting the stage: the cluster, its network and its manifests.

use super::Vocabulary;
use crate::things::NAMESPACE;
use anyhow::{Context, bail, ensure};

pub(super) fn register(steps: &mut Vocabulary) {
    steps.add("a cluster set up as the guides describe", |world, _| {
        Box::pin(async move { world.backend().start_controller(0).await })
    });
    steps.add("a cluster set up as the guides describe, its controller not yet started", |_, _| {
        Box::pin(async { Ok(()) })
    });
    steps.add("the controller is started", |world, _| {
        Box::pin(async move { world.backend().start_controller(0).await })
    });
    steps.add("the manifest {string} is applied", |world, arguments| {
        Box::pin(async move { world.apply_file(arguments.text(0)).await })
    });
    steps.add("the manifest {string} is applied with", |world, arguments| {
        Box::pin(async move {
            let changes: Vec<(&str, &str)> = arguments
                .table
                .iter()
                .map(|row| match row.as_slice() {
                    [path, value] => Ok((path.as_str(), value.as_str())),
                    _ => bail!("a row of the table is a path and a value, not {row:?}"),
                })
                .collect::<anyhow::Result<_>>()?;
            ensure!(!changes.is_empty(), "the step has no table of changes");
            world.apply_changed(arguments.text(0), &changes).await
        })
    });
    steps.add("the objects are applied", |world, arguments| {
        Box::pin(async move {
            let text = arguments.docstring.as_deref().context("the step has no text with objects")?;
            world.apply_text(text).await
        })
    });
    steps.add("the objects are refused with {string}", |world, arguments| {
        Box::pin(async move {
            let text = arguments.docstring.as_deref().context("the step has no text with objects")?;
            refused(world.apply_text(text).await, arguments.text(0))
        })
    });
    steps.add("the manifest {string} is refused with {string}", |world, arguments| {
        Box::pin(async move { refused(world.apply_file(arguments.text(0)).await, arguments.text(1)) })
    });
    steps.add("{integer} objects exist", |world, arguments| {
        Box::pin(async move {
            // Of several kinds, since the order within each is what a hash map would shuffle. None asks for a node: the
            // classes select nothing that exists, the pools use those classes, and the pods are gated.
            for index in 0..arguments.integer(0) {
                world.apply_text(&object(index)).await?;
            }
            Ok(())
        })
    });
}

/// The API server refused, and said this.
pub(super) fn refused(outcome: anyhow::Result<()>, message: &str) -> anyhow::Result<()> {
    let Err(error) = outcome else { bail!("it was accepted") };
    let told = format!("{error:#}");
    ensure!(told.contains(message), "it was refused with: {told}");
    Ok(())
}

fn object(index: usize) -> String {
    match index % 4 {
        0 => format!(
            "apiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nmetadata: {{name: other-{index}}}\nspec:\n  role: KarpenterNodeRole-demo\n  \
             amiSelectorTerms: [{{alias: al2023@latest}}]\n  subnetSelectorTerms: [{{tags: {{karpenter.sh/discovery: other}}}}]\n  \
             securityGroupSelectorTerms: [{{tags: {{karpenter.sh/discovery: other}}}}]\n"
        ),
        1 => format!(
            "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: other-{index}}}\nspec:\n  template:\n    spec:\n      \
             requirements: []\n      nodeClassRef: {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: other-{}}}\n",
            index - 1
        ),
        _ => format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: gated-{index}, namespace: {NAMESPACE}}}\nspec:\n  \
             schedulingGates: [{{name: example.com/wait}}]\n  containers: [{{name: main, image: nginx}}]\n"
        ),
    }
}
