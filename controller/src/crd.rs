//! `controller crd`: the CustomResourceDefinitions, for whoever installs without the chart.

/// All CustomResourceDefinitions as one YAML stream.
pub fn yaml() -> Result<String, serde_yaml_ng::Error> {
    controller_api::crds().iter().try_fold(String::new(), |mut text, crd| {
        text.push_str("---\n");
        text.push_str(&serde_yaml_ng::to_string(crd)?);
        Ok(text)
    })
}
