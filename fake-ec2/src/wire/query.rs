//! Form encoding of EC2 and the query services: dotted keys, numbered lists.
//!
//! Every value remembers whether it was read. After an action has read what it knows, [`Query::finish`] refuses what is
//! left over, as EC2 refuses parameters it does not know; [`Query::ignore`] names those that are known and have no
//! effect here.

use crate::cloud::filter::{Filter, Filters};
use crate::cloud::members::Members;
use crate::cloud::queue::md5_hex;
use crate::cloud::tags::Tags;
use crate::error::ApiError;
use crate::wire::percent_decode_bytes;
use crate::wire::signature::PARAMETERS;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

/// The most fields of one form. A fleet over the whole catalogue has some ten thousand; each takes a hundred bytes beside its
/// text, so that at this bound a form of 4 MiB stays below 10 MiB.
const MAX_FIELDS: usize = 50_000;

/// A form as received. The marks are atomic only because a request may wait across threads; one action reads at a time.
#[derive(Debug, Default)]
pub(crate) struct Form(BTreeMap<String, (String, AtomicBool)>);

impl Form {
    // fidelity: documented(Common errors of EC2 and of the query services: MalformedQueryString); assumed: that
    // other bytes than UTF-8, and more than 50,000 fields, are told MalformedQueryString
    pub(crate) fn parse(text: &[u8]) -> Result<Self, ApiError> {
        let refuse = |message: &str| Err(ApiError::client("MalformedQueryString", message));
        if std::str::from_utf8(&percent_decode_bytes(text)).is_err() {
            return refuse("The query string contains bytes that are not UTF-8.");
        }
        if text.iter().filter(|byte| **byte == b'&').count() >= MAX_FIELDS {
            return refuse(&format!("The query string contains more than {MAX_FIELDS} parameters."));
        }
        let pairs = form_urlencoded::parse(text);
        Ok(Self(pairs.map(|(key, value)| (key.into_owned(), (value.into_owned(), AtomicBool::new(false)))).collect()))
    }

    pub(crate) fn peek(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|(value, _)| value.as_str())
    }

    /// The name of every parameter.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Adds a parameter that came another way, unless it is there.
    pub(crate) fn supply(&mut self, name: &str, value: &str) {
        self.0.entry(name.to_owned()).or_insert_with(|| (value.to_owned(), AtomicBool::new(false)));
    }

    /// The values of the parameters whose names end so.
    pub(crate) fn ending_with(&self, name: &'static str) -> impl Iterator<Item = &str> {
        let last = move |key: &&String| key.rsplit('.').next() == Some(name);
        self.0.iter().filter(move |(key, _)| last(key)).map(|(_, (value, _))| value.as_str())
    }

    /// A copy of which nothing has been read.
    pub(crate) fn unread(&self) -> Self {
        Self(self.0.iter().map(|(key, (value, _))| (key.clone(), (value.clone(), AtomicBool::new(false)))).collect())
    }

    pub(crate) fn query(&self) -> Query<'_> {
        let query = Query { form: self, prefix: String::new() };
        // They say how the request is to be understood and believed; no action asks for them.
        for name in ["Action", "Version", "X-Amz-Security-Token"].iter().chain(&PARAMETERS) {
            query.text(name);
        }
        query
    }

    pub(crate) fn to_json(&self) -> Value {
        // Tokens and signatures are nobody's business afterwards.
        let shown =
            |key: &str| !matches!(key, "Action" | "Version" | "X-Amz-Security-Token") && !PARAMETERS.contains(&key);
        let entries = self.0.iter().filter(|(key, _)| shown(key));
        Value::Object(entries.map(|(key, (value, _))| (key.clone(), Value::String(value.clone()))).collect())
    }

    /// A digest of the form without its idempotency token, to tell a repetition from another request under the same token.
    pub(crate) fn fingerprint(&self) -> String {
        let mut text = String::new();
        for (key, (value, _)) in self.0.iter().filter(|(key, _)| key.as_str() != "ClientToken") {
            text.extend([key, "\u{1}", value, "\u{2}"]);
        }
        md5_hex(text.as_bytes())
    }
}

/// A form, or the part of it below a prefix.
#[derive(Debug)]
pub(crate) struct Query<'a> {
    form: &'a Form,
    prefix: String,
}

impl<'a> Query<'a> {
    pub(crate) fn text(&self, name: &str) -> Option<&'a str> {
        let (value, read) = self.form.0.get(&format!("{}{name}", self.prefix))?;
        read.store(true, Ordering::Relaxed);
        Some(value)
    }

    pub(crate) fn owned(&self, name: &str) -> Option<String> {
        self.text(name).map(str::to_owned)
    }

    pub(crate) fn required(&self, name: &str) -> Result<&'a str, ApiError> {
        self.text(name)
            .filter(|value| !value.is_empty())
            .ok_or_else(|| ApiError::missing(&format!("{}{name}", self.prefix)))
    }

    pub(crate) fn boolean(&self, name: &str) -> Result<Option<bool>, ApiError> {
        match self.text(name) {
            None => Ok(None),
            Some(text) if text.eq_ignore_ascii_case("true") => Ok(Some(true)),
            Some(text) if text.eq_ignore_ascii_case("false") => Ok(Some(false)),
            Some(text) => Err(ApiError::invalid_value(format!(
                "Value ({text}) for parameter {name} is invalid. Expected a boolean"
            ))),
        }
    }

    pub(crate) fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, ApiError> {
        let parse = |text: &str| {
            let refuse = || {
                ApiError::invalid_value(format!("Value ({text}) for parameter {name} is invalid. Expected a number"))
            };
            text.parse().map_err(|_| refuse())
        };
        self.text(name).map(parse).transpose()
    }

    pub(crate) fn time(&self, name: &str) -> Result<Option<Timestamp>, ApiError> {
        let parse = |text: &str| {
            text.parse()
                .map_err(|_| ApiError::invalid_value(format!("Value ({text}) for parameter {name} is invalid.")))
        };
        self.text(name).map(parse).transpose()
    }

    /// The values of `name.1`, `name.2`, … in the order of their numbers.
    pub(crate) fn list(&self, name: &str) -> Vec<&'a str> {
        self.indices(name).into_iter().filter_map(|index| self.text(&format!("{name}.{index}"))).collect()
    }

    /// The members of a list of structures.
    pub(crate) fn structures(&self, name: &str) -> Vec<Query<'a>> {
        self.indices(name).into_iter().map(|index| self.part(&format!("{name}.{index}."))).collect()
    }

    /// The structure `name`, if any of its members is there.
    pub(crate) fn structure(&self, name: &str) -> Option<Query<'a>> {
        let part = self.part(&format!("{name}."));
        let present = part.entries().next().is_some();
        present.then_some(part)
    }

    /// Parameters that are known and have no effect here, and why; a name covers the members below it. docs/fidelity.md
    /// lists them from these calls.
    pub(crate) fn ignore(&self, reason: &str, names: &[&str]) {
        for name in names {
            let below = self.part(&format!("{name}."));
            below.entries().for_each(|(_, read)| read.store(true, Ordering::Relaxed));
            if self.text(name).is_some() || below.entries().next().is_some() {
                let parameter = format!("{}{name}", self.prefix);
                tracing::info!(%parameter, reason, "a parameter is accepted and has no effect here");
            }
        }
    }

    /// A text that has to be one of these.
    pub(crate) fn choice(&self, name: &str, known: &[&str]) -> Result<Option<String>, ApiError> {
        match self.text(name) {
            Some(text) if !known.contains(&text) => Err(ApiError::invalid_value(format!(
                "Value ({text}) for parameter {name} is invalid. Valid values are: {}",
                known.join(", ")
            ))),
            text => Ok(text.map(str::to_owned)),
        }
    }

    /// What is given under these names, to be kept and told again; a name covers the members below it.
    pub(crate) fn members(&self, names: &[&str]) -> Members {
        let mut kept = Vec::new();
        for name in names {
            self.text(name).into_iter().for_each(|value| kept.push(((*name).to_owned(), value.to_owned())));
            for (path, value) in self.part(&format!("{name}.")).all_members().iter() {
                kept.push((format!("{name}.{path}"), value.to_owned()));
            }
        }
        kept.into_iter().collect()
    }

    /// The same of what has no effect beyond being told again, which the log says as for [`Self::ignore`].
    pub(crate) fn keep(&self, reason: &str, names: &[&str]) -> Members {
        self.ignore(reason, names);
        self.members(names)
    }

    /// Everything below the prefix, to be kept and told again.
    pub(crate) fn all_members(&self) -> Members {
        let from_prefix = self.form.0.range(self.prefix.clone()..);
        let own = from_prefix.take_while(|(key, _)| key.starts_with(&self.prefix));
        let kept = own.map(|(key, (value, read))| {
            read.store(true, Ordering::Relaxed);
            (key[self.prefix.len()..].to_owned(), value.clone())
        });
        kept.collect()
    }

    /// Refuses parameters that nobody has read.
    // fidelity: documented(EC2 API Reference, Common errors: UnknownParameter)
    pub(crate) fn finish(&self) -> Result<(), ApiError> {
        let Some((key, _)) = self.entries().find(|(_, read)| !read.load(Ordering::Relaxed)) else { return Ok(()) };
        tracing::warn!(parameter = %key, "request carries a parameter that is not known");
        Err(ApiError::client("UnknownParameter", format!("The parameter {key} is not recognized")))
    }

    pub(crate) fn dry_run(&self) -> Result<bool, ApiError> {
        Ok(self.boolean("DryRun")?.unwrap_or(false))
    }

    pub(crate) fn tags(&self, name: &str) -> Result<Tags, ApiError> {
        let mut tags = Tags::default();
        for tag in self.structures(name) {
            let key = tag.required("Key")?.to_owned();
            tags.insert(key, tag.owned("Value").unwrap_or_default());
        }
        Ok(tags)
    }

    pub(crate) fn filters(&self) -> Result<Filters, ApiError> {
        let mut filters = Vec::new();
        for filter in self.structures("Filter") {
            let name = filter.required("Name")?.to_owned();
            let values = filter.list("Value").into_iter().map(str::to_owned).collect();
            filters.push(Filter { name, values });
        }
        Filters::new(filters)
    }

    fn part(&self, name: &str) -> Query<'a> {
        Query { form: self.form, prefix: format!("{}{name}", self.prefix) }
    }

    fn entries<'b>(&'b self) -> impl Iterator<Item = (&'a String, &'a AtomicBool)> + 'b {
        let from_prefix = self.form.0.range(self.prefix.clone()..);
        from_prefix.take_while(|(key, _)| key.starts_with(&self.prefix)).map(|(key, (_, read))| (key, read))
    }

    fn indices(&self, name: &str) -> BTreeSet<u32> {
        let part = self.part(&format!("{name}."));
        let index = |key: &String| {
            let number = key[part.prefix.len()..].split('.').next()?;
            number.bytes().all(|byte| byte.is_ascii_digit()).then(|| number.parse().ok())?
        };
        part.entries().filter_map(|(key, _)| index(key)).collect()
    }
}
