//! The corpus of valid and invalid objects of Karpenter's kinds (`fake-kube/contract/definitions`), sent to every server
//! under every set of definitions: the same verdict, in the same words, and the same object stored.
//!
//! Each answer is compared with what the corpus says, and with the first server's whole answer. Nothing but ids, times and
//! revisions is masked; causes are compared without their order, which the genuine server draws from a Go map.

use super::{Difference, Section, Server};
use anyhow::{Context, bail, ensure};
use http::{Method, Request};
use http_body_util::BodyExt;
use kube::client::Body;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

const CORPORA: [&str; 5] = [
    include_str!("../../../fake-kube/contract/definitions/nodepools.yaml"),
    include_str!("../../../fake-kube/contract/definitions/nodeclaims.yaml"),
    include_str!("../../../fake-kube/contract/definitions/ec2nodeclasses.yaml"),
    include_str!("../../../fake-kube/contract/definitions/nodeoverlays.yaml"),
    include_str!("../../../fake-kube/contract/definitions/capacitybuffers.yaml"),
];

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// How long a server may take to serve a definition that it accepted. The genuine one needs some 100 ms.
const SERVED_WITHIN: Duration = Duration::from_secs(30);

/// The value of a field that is left out.
const ABSENT: &str = "(absent)";

/// Which definitions a server holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Definitions {
    /// The controller's own.
    Ours,
    /// Those of the release of Karpenter that the controller is compared with.
    Upstream,
}

/// Compares the servers under our definitions and, where a folder holds them, under upstream's. The servers end with ours.
pub async fn section(servers: &[Server], upstream: Option<&Path>) -> anyhow::Result<Section> {
    let corpora = corpora()?;
    let ours: Vec<Value> = controller_api::crds().iter().map(serde_json::to_value).collect::<Result<_, _>>()?;
    let mut section = Section { name: "definitions", ..Section::default() };
    let mut sets = vec![(Definitions::Ours, ours.clone())];
    if let Some(folder) = upstream {
        sets.push((Definitions::Upstream, read_definitions(folder, &corpora)?));
    }
    for (set, definitions) in &sets {
        for server in servers {
            install(server, definitions, Some(*set))
                .await
                .with_context(|| format!("definitions on {}", server.name))?;
        }
        let ours = *set == Definitions::Ours;
        for corpus in corpora.iter().filter(|corpus| !ours || corpus.upstream_only.is_none()) {
            compare(corpus, *set, servers, &mut section).await?;
        }
    }
    for server in servers {
        remove(server, &corpora).await?;
        install(server, &ours, None).await.with_context(|| format!("definitions on {}", server.name))?;
    }
    Ok(section)
}

// The corpus.

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Corpus {
    kind: String,
    resource: Resource,
    /// Why our definitions have no such kind.
    #[serde(default)]
    upstream_only: Option<String>,
    texts: BTreeMap<String, String>,
    base: Value,
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Resource {
    group: String,
    version: String,
    plural: String,
    #[serde(default)]
    namespaced: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    rule: String,
    #[allow(dead_code)] // For people: where the rule is written down.
    section: String,
    /// The field that the values are for.
    at: String,
    /// Whether a value is merged into what the base has there, rather than taking its place.
    #[serde(default)]
    merge: bool,
    #[serde(default)]
    part: Part,
    #[serde(default)]
    field_validation: FieldValidation,
    /// A merge patch that makes the rule's own base.
    #[serde(default)]
    base: Option<Value>,
    /// The rule came after the release whose definitions are compared: what they say of it.
    #[serde(default)]
    newer: Option<String>,
    /// Our definitions say something else than upstream's on purpose: why.
    #[serde(default)]
    differs: Option<String>,
    #[serde(default)]
    accepted: Vec<Value>,
    #[serde(default)]
    refused: Vec<Refused>,
    #[serde(default)]
    cases: Vec<Case>,
}

#[derive(Clone, Copy, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Part {
    #[default]
    Whole,
    Status,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
enum FieldValidation {
    #[default]
    Strict,
    Warn,
    Ignore,
}

/// Values that are refused with the same words.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Refused {
    values: Vec<Value>,
    #[serde(default)]
    causes: Vec<String>,
    #[serde(default)]
    message: Option<String>,
}

/// One value, or a change from one value to another.
#[derive(Clone, Deserialize)]
struct Case {
    #[serde(default, deserialize_with = "present")]
    value: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    from: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    to: Option<Value>,
    #[serde(flatten)]
    expected: Expected,
    /// What upstream's definitions make of it, where that is something else.
    #[serde(default)]
    upstream: Option<Expected>,
}

/// What should come of a case: refused where there are causes or a message, else accepted.
#[derive(Clone, Default, Deserialize)]
struct Expected {
    #[serde(default)]
    causes: Vec<String>,
    #[serde(default)]
    message: Option<String>,
    /// Fields of the object that the server answers with. Without any, the value is kept as it was sent.
    #[serde(default)]
    stored: Option<BTreeMap<String, Value>>,
    #[serde(default)]
    warnings: Vec<String>,
}

/// `null` is a value like another.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

fn corpora() -> anyhow::Result<Vec<Corpus>> {
    CORPORA.iter().map(|text| Ok(serde_yaml_ng::from_str(text)?)).collect()
}

impl Rule {
    fn cases(&self) -> Vec<Case> {
        let one = |value: &Value, expected: Expected| Case {
            value: Some(value.clone()),
            from: None,
            to: None,
            expected,
            upstream: None,
        };
        let accepted = self.accepted.iter().map(|value| one(value, Expected::default()));
        let refused = self.refused.iter().flat_map(|refused| {
            let expected =
                Expected { causes: refused.causes.clone(), message: refused.message.clone(), ..Expected::default() };
            refused.values.iter().map(move |value| one(value, expected.clone()))
        });
        accepted.chain(refused).chain(self.cases.iter().cloned()).collect()
    }
}

impl Case {
    /// The value that is sent last.
    fn sent(&self) -> &Value {
        self.to.as_ref().or(self.value.as_ref()).unwrap_or(&Value::Null)
    }

    fn name(&self) -> String {
        let shown = |value: &Value| {
            let text = value.to_string();
            if text.chars().count() > 120 { text.chars().take(117).chain("...".chars()).collect() } else { text }
        };
        match &self.from {
            Some(from) => format!("{} to {}", shown(from), shown(self.sent())),
            None => shown(self.sent()),
        }
    }
}

impl Corpus {
    fn path(&self) -> String {
        let Resource { group, version, plural, namespaced } = &self.resource;
        let namespace = if *namespaced { "namespaces/default/" } else { "" };
        format!("/apis/{group}/{version}/{namespace}{plural}")
    }

    /// The object that a value of a rule makes.
    fn object(&self, rule: &Rule, value: &Value, name: &str) -> anyhow::Result<Value> {
        let mut object = self.named(name);
        if let Some(patch) = &rule.base {
            merge(&mut object, patch);
        }
        apply(&mut object, rule, value)?;
        Ok(object)
    }

    fn named(&self, name: &str) -> Value {
        let mut object = json!({
            "apiVersion": format!("{}/{}", self.resource.group, self.resource.version),
            "kind": self.kind,
            "metadata": { "name": name },
        });
        merge(&mut object, &self.base);
        object
    }

    /// A cause with its abbreviations written out.
    fn cause(&self, rule: &Rule, case: &Case, cause: &str) -> String {
        let mut text = cause.replace("$at", &rule.at).replace("$value", &case.sent().to_string());
        for (name, long) in &self.texts {
            text = text.replace(&format!("<{name}>"), long);
        }
        text
    }
}

/// Puts a value where the rule says.
fn apply(object: &mut Value, rule: &Rule, value: &Value) -> anyhow::Result<()> {
    let value = expanded(value);
    if rule.merge {
        let mut merged = at(object, &rule.at).cloned().unwrap_or_default();
        merge(&mut merged, &value);
        return put(object, &rule.at, merged);
    }
    put(object, &rule.at, value)
}

/// Writes out `{ times: 3, … }`: a text so many times, a list of so many items, a map of so many keys. `{}` is the number.
fn expanded(value: &Value) -> Value {
    let Value::Object(fields) = value else {
        return match value {
            Value::Array(items) => items.iter().map(expanded).collect(),
            _ => value.clone(),
        };
    };
    let times = fields.get("times").and_then(Value::as_u64).and_then(|times| usize::try_from(times).ok());
    let (text, item, key) = (fields.get("text"), fields.get("item"), fields.get("key").and_then(Value::as_str));
    match (times, text.and_then(Value::as_str), item, key) {
        (Some(times), Some(text), _, _) => text.repeat(times).into(),
        (Some(times), _, Some(item), _) => (0..times).map(|number| expanded(&numbered(item, number))).collect(),
        (Some(times), _, _, Some(key)) => {
            let value = fields.get("value").map(expanded).unwrap_or_default();
            Value::Object((0..times).map(|number| (key.replace("{}", &number.to_string()), value.clone())).collect())
        }
        _ => Value::Object(fields.iter().map(|(name, value)| (name.clone(), expanded(value))).collect()),
    }
}

fn numbered(value: &Value, number: usize) -> Value {
    match value {
        Value::String(text) => text.replace("{}", &number.to_string()).into(),
        Value::Array(items) => items.iter().map(|item| numbered(item, number)).collect(),
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(name, value)| (name.clone(), numbered(value, number))).collect())
        }
        _ => value.clone(),
    }
}

/// A JSON merge patch (RFC 7386).
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (name, value) in patch {
        match value {
            Value::Null => {
                target.as_object_mut().map(|fields| fields.remove(name));
            }
            _ => merge(&mut target[name.as_str()], value),
        }
    }
}

enum Step<'a> {
    Field(&'a str),
    Index(usize),
}

/// `spec.budgets[0].nodes` in steps.
fn steps(path: &str) -> impl Iterator<Item = Step<'_>> {
    path.split('.').flat_map(|field| {
        let mut parts = field.split('[');
        let name = parts.next().into_iter().map(Step::Field);
        name.chain(parts.filter_map(|index| index.trim_end_matches(']').parse().ok().map(Step::Index)))
    })
}

fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    steps(path).try_fold(object, |value, step| match step {
        Step::Field(name) => value.get(name),
        Step::Index(index) => value.get(index),
    })
}

fn put(object: &mut Value, path: &str, value: Value) -> anyhow::Result<()> {
    let mut place = object;
    let steps: Vec<Step> = steps(path).collect();
    let (last, way) = steps.split_last().context("an empty path")?;
    let enter = |place: &mut Value, step: &Step| match step {
        Step::Field(_) if place.is_null() => *place = json!({}),
        Step::Index(_) if place.is_null() => *place = json!([]),
        _ => {}
    };
    for step in way {
        enter(place, step);
        place = match step {
            Step::Field(name) => &mut place[*name],
            Step::Index(index) => {
                let list = place.as_array_mut().with_context(|| format!("{path} leads through no list"))?;
                ensure!(*index <= list.len(), "{path} leaves items out");
                if *index == list.len() {
                    list.push(Value::Null);
                }
                &mut list[*index]
            }
        };
    }
    enter(place, last);
    match last {
        Step::Field(name) if value == ABSENT => {
            place.as_object_mut().map(|fields| fields.remove(*name));
        }
        Step::Field(name) => place[*name] = value,
        Step::Index(index) => {
            let list = place.as_array_mut().with_context(|| format!("{path} is in no list"))?;
            match list.get_mut(*index) {
                Some(item) => *item = value,
                None => list.push(value),
            }
        }
    }
    Ok(())
}

// The servers.

/// What a server answered.
struct Answer {
    code: u16,
    body: Value,
    warnings: Vec<String>,
}

impl Answer {
    fn accepted(&self) -> bool {
        self.code < 300
    }

    fn text(&self, pointer: &str) -> &str {
        self.body.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// Every cause as `field: text`, in the server's order.
    fn causes(&self) -> Vec<String> {
        let causes = self.body.pointer("/details/causes").and_then(Value::as_array);
        let text = |cause: &Value, name: &str| cause[name].as_str().unwrap_or_default().to_owned();
        let shown = |cause: &Value| format!("{}: {}", text(cause, "field"), text(cause, "message"));
        causes.into_iter().flatten().map(shown).collect()
    }

    /// The answer without ids, times and revisions, and with causes in order.
    fn masked(&self) -> Value {
        let mut body = self.body.clone();
        if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
            for field in ["uid", "creationTimestamp", "resourceVersion", "managedFields"] {
                metadata.remove(field);
            }
        }
        if let Some(causes) = body.pointer_mut("/details/causes").and_then(Value::as_array_mut) {
            causes.sort_by_key(|cause| (cause["field"].to_string(), cause["message"].to_string()));
            if causes.len() > 1 {
                // Made of the causes in their order, which `faults` checks.
                body["message"] = Value::Null;
            }
        }
        json!({ "code": self.code, "body": body, "warnings": self.warnings })
    }
}

impl Server {
    async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Answer> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("Accept", "application/json")
            .header("Content-Type", "application/json")
            .body(Body::from(body.map(Value::to_string).unwrap_or_default().into_bytes()))?;
        self.answer(request).await
    }

    async fn answer(&self, request: Request<Body>) -> anyhow::Result<Answer> {
        let (head, body) = self.client.send(request).await?.into_parts();
        let warnings = head.headers.get_all("Warning").iter().map(|warning| {
            // `299 - "the text"`
            let text = warning.to_str()?.splitn(3, ' ').nth(2).unwrap_or_default();
            anyhow::Ok(serde_json::from_str(text)?)
        });
        let warnings = warnings.collect::<anyhow::Result<_>>()?;
        let bytes = body.collect().await?.to_bytes();
        let body = serde_json::from_slice(&bytes).unwrap_or_else(|_| String::from_utf8_lossy(&bytes).into());
        Ok(Answer { code: head.status.as_u16(), body, warnings })
    }

    async fn must(&self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Value> {
        let answer = self.ask(method.clone(), path, body).await?;
        if !answer.accepted() {
            bail!("{method} {path} on {}: {} {}", self.name, answer.code, answer.text("/message"));
        }
        Ok(answer.body)
    }
}

fn read_definitions(folder: &Path, corpora: &[Corpus]) -> anyhow::Result<Vec<Value>> {
    let read = |corpus: &Corpus| {
        let path = folder.join(format!("{}_{}.yaml", corpus.resource.group, corpus.resource.plural));
        let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        serde_yaml_ng::from_str(&text).with_context(|| format!("reading {}", path.display()))
    };
    corpora.iter().map(read).collect()
}

/// Makes a server hold these definitions, and waits until it serves by them: a column of tables tells which they are.
async fn install(server: &Server, definitions: &[Value], set: Option<Definitions>) -> anyhow::Result<()> {
    const MARK: &str = "Contract";
    let mark = set.map(|set| format!("{MARK}{set:?}"));
    for definition in definitions {
        let mut definition = definition.clone();
        if let Some(mark) = &mark {
            let columns = definition.pointer_mut("/spec/versions/0/additionalPrinterColumns");
            let columns = columns.and_then(Value::as_array_mut).context("a definition without columns")?;
            columns.push(json!({ "name": mark, "type": "string", "jsonPath": ".metadata.name", "priority": 1 }));
        }
        let path = format!("{DEFINITIONS}/{}", definition["metadata"]["name"].as_str().unwrap_or_default());
        let present = server.ask(Method::GET, &path, None).await?;
        if present.accepted() {
            definition["metadata"]["resourceVersion"] = present.body["metadata"]["resourceVersion"].clone();
            server.must(Method::PUT, &path, Some(&definition)).await?;
        } else {
            server.must(Method::POST, DEFINITIONS, Some(&definition)).await?;
        }
    }
    for definition in definitions {
        let spec = &definition["spec"];
        let [group, version, plural] = [&spec["group"], &spec["versions"][0]["name"], &spec["names"]["plural"]]
            .map(|text| text.as_str().unwrap_or_default());
        let path = format!("/apis/{group}/{version}/{plural}?limit=1");
        let served = async {
            loop {
                let table = Request::get(&path).header("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1");
                let answer = server.answer(table.body(Body::from(Vec::new()))?).await?;
                let columns = answer.body["columnDefinitions"].as_array().map(Vec::as_slice).unwrap_or_default();
                let names = || columns.iter().filter_map(|column| column["name"].as_str());
                let marked = names().find(|name| name.starts_with(MARK));
                if answer.accepted() && marked == mark.as_deref() {
                    return anyhow::Ok(());
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(SERVED_WITHIN, served)
            .await
            .with_context(|| format!("{plural} are not served by the new definition"))??;
    }
    Ok(())
}

/// Takes away the definitions that ours do not replace.
async fn remove(server: &Server, corpora: &[Corpus]) -> anyhow::Result<()> {
    for corpus in corpora.iter().filter(|corpus| corpus.upstream_only.is_some()) {
        let path = format!("{DEFINITIONS}/{}.{}", corpus.resource.plural, corpus.resource.group);
        if server.ask(Method::GET, &path, None).await?.accepted() {
            server.must(Method::DELETE, &path, None).await?;
        }
    }
    Ok(())
}

// The comparison.

async fn compare(corpus: &Corpus, set: Definitions, servers: &[Server], section: &mut Section) -> anyhow::Result<()> {
    let path = corpus.path();
    // Status is written to an object that is there.
    let mut standing = Vec::new();
    for server in servers {
        let _ = server.ask(Method::DELETE, &format!("{path}/standing"), None).await?;
        standing.push(server.must(Method::POST, &path, Some(&corpus.named("standing"))).await?);
    }
    for (number, rule) in corpus.rules.iter().enumerate() {
        for (index, case) in rule.cases().iter().enumerate() {
            let name = format!("{}: {}: {}", corpus.kind, rule.rule, case.name());
            let title = match set {
                Definitions::Ours => name.clone(),
                Definitions::Upstream => format!("{name} (upstream's definitions)"),
            };
            let expected = match (&case.upstream, set) {
                (Some(upstream), Definitions::Upstream) => upstream,
                _ => &case.expected,
            };
            section.cases += 1;
            let mut first: Option<Value> = None;
            for (server, standing) in servers.iter().zip(&standing) {
                let answer = send(corpus, rule, case, server, standing, &format!("case-{number}-{index}"))
                    .await
                    .with_context(|| format!("{title}, on {}", server.name))?;
                for fault in faults(corpus, rule, case, expected, &answer) {
                    let found = format!("{}: {fault}", server.name);
                    section.differences.push(Difference { case: title.clone(), found, reason: None });
                }
                let masked = answer.masked();
                match &first {
                    None => first = Some(masked),
                    Some(first) if *first == masked => {}
                    Some(first) => section.differences.push(Difference {
                        case: title.clone(),
                        found: format!("{}: {first}\n{}: {masked}", servers[0].name, server.name),
                        reason: None,
                    }),
                }
            }
            if let (Definitions::Upstream, Some(upstream)) = (set, &case.upstream) {
                let found = format!("ours: {}; upstream's: {}", case.expected.told(), upstream.told());
                let newer = rule.newer.as_ref().map(|newer| format!("newer than the release: {newer}"));
                let reason = newer.or_else(|| rule.differs.clone());
                section.differences.push(Difference { case: name, found, reason });
            }
        }
    }
    for server in servers {
        server.must(Method::DELETE, &format!("{path}/standing"), None).await?;
    }
    Ok(())
}

impl Expected {
    fn accepted(&self) -> bool {
        self.causes.is_empty() && self.message.is_none()
    }

    fn told(&self) -> String {
        match &self.message {
            Some(message) => message.clone(),
            None if self.accepted() => "accepted".into(),
            None => self.causes.join("; "),
        }
    }
}

/// Sends a case and cleans up after it.
async fn send(
    corpus: &Corpus,
    rule: &Rule,
    case: &Case,
    server: &Server,
    standing: &Value,
    name: &str,
) -> anyhow::Result<Answer> {
    let path = corpus.path();
    let query = format!("dryRun=All&fieldValidation={:?}", rule.field_validation);
    if rule.part == Part::Status {
        let mut object = standing.clone();
        object["status"] = json!({});
        apply(&mut object, rule, case.sent())?;
        return server.ask(Method::PUT, &format!("{path}/standing/status?{query}"), Some(&object)).await;
    }
    let Some(from) = &case.from else {
        let object = corpus.object(rule, case.sent(), name)?;
        return server.ask(Method::POST, &format!("{path}?{query}"), Some(&object)).await;
    };
    let _ = server.ask(Method::DELETE, &format!("{path}/{name}"), None).await?;
    let made = server.must(Method::POST, &path, Some(&corpus.object(rule, from, name)?)).await?;
    let mut object = corpus.object(rule, case.sent(), name)?;
    object["metadata"]["resourceVersion"] = made["metadata"]["resourceVersion"].clone();
    let answer = server.ask(Method::PUT, &format!("{path}/{name}?{query}"), Some(&object)).await?;
    server.must(Method::DELETE, &format!("{path}/{name}"), None).await?;
    Ok(answer)
}

/// What is wrong with an answer.
fn faults(corpus: &Corpus, rule: &Rule, case: &Case, expected: &Expected, answer: &Answer) -> Vec<String> {
    let mut faults = Vec::new();
    let mut differ = |what: &str, wanted: String, found: String| {
        if wanted != found {
            faults.push(format!("{what} should be {wanted}, is {found}"));
        }
    };
    let verdict = match (expected.accepted(), &expected.message, case.from.is_some() || rule.part == Part::Status) {
        (true, _, false) => "201 ",
        (true, _, true) => "200 ",
        (false, Some(_), _) => "400 BadRequest",
        (false, None, _) => "422 Invalid",
    };
    differ("the verdict", verdict.into(), format!("{} {}", answer.code, answer.text("/reason")));
    let mut wanted: Vec<String> = expected.causes.iter().map(|cause| corpus.cause(rule, case, cause)).collect();
    let mut found = answer.causes();
    if found.len() > 1 {
        differ("the message", aggregate(corpus, answer, &found), answer.text("/message").into());
    }
    wanted.sort();
    found.sort();
    differ("the list of causes", format!("{wanted:#?}"), format!("{found:#?}"));
    if let Some(message) = &expected.message {
        differ("the message", message.clone(), answer.text("/message").into());
    }
    if answer.accepted() && expected.accepted() {
        let kept = || BTreeMap::from([(rule.at.clone(), expanded(case.sent()))]);
        let stored = expected.stored.clone().unwrap_or_else(|| if rule.merge { BTreeMap::new() } else { kept() });
        for (path, value) in stored {
            let found = at(&answer.body, &path).cloned().unwrap_or_else(|| ABSENT.into());
            differ(&path, value.to_string(), found.to_string());
        }
    }
    differ("the list of warnings", format!("{:?}", expected.warnings), format!("{:?}", answer.warnings));
    faults
}

/// The sentence that the API machinery makes of several causes: each text once.
fn aggregate(corpus: &Corpus, answer: &Answer, causes: &[String]) -> String {
    let mut texts: Vec<&str> = Vec::new();
    for cause in causes {
        if !texts.contains(&cause.as_str()) {
            texts.push(cause);
        }
    }
    let texts = if let [one] = texts.as_slice() { (*one).to_owned() } else { format!("[{}]", texts.join(", ")) };
    let name = answer.text("/details/name");
    format!("{}.{} \"{name}\" is invalid: {texts}", corpus.kind, corpus.resource.group)
}

#[cfg(test)]
mod tests {
    use super::*;
    use controller_clock::Clock;
    use fake_kube::FakeKube;

    fn fake(clock: Clock) -> Server {
        let kube = FakeKube::new(fake_kube::Options::new(clock));
        Server { name: "fake-kube".into(), client: kube::Client::new(kube.service(), "default") }
    }

    fn told(section: &Section) -> String {
        let faults = section.differences.iter().filter(|difference| difference.reason.is_none());
        faults.map(|difference| format!("{}\n  {}\n", difference.case, difference.found)).collect()
    }

    /// What a node of a schema refuses: a field as cases name it, and a part of the cause's text.
    fn refusals(path: &str, schema: &Value, found: &mut Vec<(String, String)>) {
        let mut add = |path: &str, text: &str| found.push((path.to_owned(), text.to_owned()));
        for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
            add(path, rule["message"].as_str().unwrap());
        }
        for (keyword, text) in [
            ("pattern", "in body should match"),
            ("enum", "Unsupported value: "),
            ("minimum", "should be greater than or equal to"),
            ("maximum", "should be less than or equal to"),
            ("maxLength", "Too long: "),
            ("minLength", "should be at least"),
            ("maxItems", "Too many: "),
            ("maxProperties", "Too many: "),
            ("minItems", "should have at least"),
            ("type", "in body must be of type"),
        ] {
            // Bounds of texts that stand on a list do nothing (core spec §1.2.6).
            let idle = schema["type"] == "array" && matches!(keyword, "pattern" | "maxLength");
            if schema.get(keyword).is_some() && !idle && !path.is_empty() {
                add(path, text);
            }
        }
        let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        for name in schema["required"].as_array().into_iter().flatten() {
            add(&below(name.as_str().unwrap()), "Required value");
        }
        let known = |name: &&String| !matches!(name.as_str(), "apiVersion" | "kind" | "metadata") || !path.is_empty();
        for (name, property) in schema["properties"].as_object().into_iter().flatten().filter(|(name, _)| known(name)) {
            refusals(&below(name), property, found);
        }
        if schema["items"].is_object() {
            refusals(&format!("{path}[]"), &schema["items"], found);
        }
        if schema["additionalProperties"].is_object() {
            refusals(&format!("{path}.*"), &schema["additionalProperties"], found);
        }
    }

    /// The fields that a path with `[]` for any item and `*` for any key stands for.
    fn fields(path: &str) -> regex::Regex {
        let pattern = regex::escape(path).replace(r"\[\]", r"\[\d+\]").replace(r"\*", ".+");
        regex::Regex::new(&format!("^{pattern}$")).unwrap()
    }

    #[test]
    fn whatever_our_definitions_refuse_is_refused_in_a_case() {
        let corpora = corpora().unwrap();
        let mut missing = Vec::new();
        for definition in controller_api::crds() {
            let corpus = corpora.iter().find(|corpus| corpus.kind == definition.spec.names.kind).unwrap();
            let mut causes = Vec::new();
            for rule in &corpus.rules {
                for case in rule.cases() {
                    causes.extend(case.expected.causes.iter().map(|cause| corpus.cause(rule, &case, cause)));
                }
            }
            let schema = serde_json::to_value(&definition.spec.versions[0].schema).unwrap();
            let mut wanted = Vec::new();
            refusals("", &schema["openAPIV3Schema"], &mut wanted);
            assert!(wanted.len() > 90, "{}", wanted.len());
            let by_field: Vec<(&str, &str)> = causes.iter().filter_map(|cause| cause.split_once(": ")).collect();
            missing.extend(wanted.into_iter().filter_map(|(path, text)| {
                let fields = fields(&path);
                let refused = by_field.iter().any(|(field, cause)| cause.contains(&text) && fields.is_match(field));
                (!refused).then(|| format!("{}: {path}: {text}\n", corpus.kind))
            }));
        }
        assert!(missing.is_empty(), "no case is refused with\n{}", missing.concat());
    }

    #[tokio::test(start_paused = true)]
    async fn the_fake_server_does_with_every_manifest_what_the_corpus_says() {
        let clock = Clock::virtual_from(jiff::Timestamp::UNIX_EPOCH);
        let section = section(&[fake(clock)], None).await.unwrap();
        assert!(section.cases > 1_000, "{}", section.cases);
        let faults = told(&section);
        assert!(faults.is_empty(), "{faults}");
    }
}
