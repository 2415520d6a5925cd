//! AWS filter semantics: AND between names, OR between values, `*` and `?` in values, tags by key or by pair.

use super::tags::Tags;
use crate::error::ApiError;

/// One filter of a Describe call.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    pub(crate) name: String,
    pub(crate) values: Vec<String>,
}

/// All filters of a Describe call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filters(Vec<Filter>);

/// Answers whether any of a resource's values under a filter's name passes the test.
pub(crate) type Test<'a> = &'a mut dyn FnMut(&str) -> bool;

impl Filters {
    // fidelity: documented(EC2 User Guide, Filter your resources: 50 filters and 200 values per request)
    pub(crate) fn new(filters: Vec<Filter>) -> Result<Self, ApiError> {
        if filters.len() > 50 || filters.iter().any(|filter| filter.values.len() > 200) {
            return Err(ApiError::client(
                "FilterLimitExceeded",
                "The maximum number of filter values specified on a single call is 200",
            ));
        }
        if let Some(empty) = filters.iter().find(|filter| filter.values.is_empty()) {
            return Err(ApiError::invalid_value(format!("The filter '{}' must have at least one value", empty.name)));
        }
        Ok(Self(filters))
    }

    /// Refuses names the action does not know. `tag-key` and `tag:…` are known wherever `tag-key` is listed.
    // fidelity: documented(EC2 API Reference, Common errors: InvalidParameterValue); the sentence as commonly seen.
    pub(crate) fn check(&self, known: &[&str]) -> Result<(), ApiError> {
        let is_known = |name: &str| known.contains(&name) || (name.starts_with("tag:") && known.contains(&"tag-key"));
        match self.0.iter().find(|filter| !is_known(&filter.name)) {
            None => Ok(()),
            Some(filter) => {
                tracing::warn!(filter = %filter.name, "request carries a filter that is not known");
                Err(ApiError::invalid_value(format!("The filter '{}' is invalid", filter.name)))
            }
        }
    }

    /// Filters whose values are all meant literally, for whoever has an index.
    pub(crate) fn exact(&self) -> impl Iterator<Item = (&str, &[String])> {
        let literal = |filter: &&Filter| !filter.values.iter().any(|value| is_pattern(value));
        self.0.iter().filter(literal).map(|filter| (filter.name.as_str(), filter.values.as_slice()))
    }

    /// Whether a resource passes every filter. `any` is asked for the resource's values under a name.
    pub(crate) fn matches(&self, tags: Option<&Tags>, mut any: impl FnMut(&str, Test<'_>) -> bool) -> bool {
        self.0.iter().all(|filter| {
            let mut test = |value: &str| filter.values.iter().any(|pattern| wildcard(pattern, value));
            if let Some(key) = filter.name.strip_prefix("tag:") {
                return tags.and_then(|tags| tags.get(key)).is_some_and(|value| test(value));
            }
            if filter.name == "tag-key" {
                return tags.is_some_and(|tags| tags.keys().any(|key| test(key)));
            }
            any(&filter.name, &mut test)
        })
    }
}

fn is_pattern(value: &str) -> bool {
    value.contains(['*', '?', '\\'])
}

/// `*` matches any text, `?` one character; a backslash takes the next character literally.
// fidelity: documented(EC2 User Guide, Filter your resources: wildcards)
pub(crate) fn wildcard(pattern: &str, value: &str) -> bool {
    if !is_pattern(pattern) {
        return pattern == value;
    }
    let (pattern, value): (Vec<char>, Vec<char>) = (pattern.chars().collect(), value.chars().collect());
    // The last star seen and how much of the value it has swallowed: on a mismatch it swallows one more. Linear in the
    // product of the lengths, unlike a recursive matcher.
    let (mut p, mut v, mut star) = (0, 0, None);
    while v < value.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, v));
                p += 1;
                continue;
            }
            Some('?') => {
                p += 1;
                v += 1;
                continue;
            }
            Some('\\') if pattern.get(p + 1) == Some(&value[v]) => {
                p += 2;
                v += 1;
                continue;
            }
            Some(&literal) if literal == value[v] && literal != '\\' => {
                p += 1;
                v += 1;
                continue;
            }
            _ => {}
        }
        let Some((at, swallowed)) = star else { return false };
        star = Some((at, swallowed + 1));
        p = at + 1;
        v = swallowed + 1;
    }
    pattern[p..].iter().all(|&rest| rest == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_match_as_documented() {
        for (pattern, value, expected) in [
            ("m5.*", "m5.large", true),
            ("m5.*", "m5a.large", false),
            ("m?.large", "m5.large", true),
            ("m?.large", "m5a.large", false),
            ("*", "", true),
            ("?", "", false),
            ("a*b*c", "a-x-b-y-c", true),
            ("a*b*c", "a-x-c", false),
            ("\\*literal", "*literal", true),
            ("\\*literal", "xliteral", false),
            ("Demo", "demo", false),
        ] {
            assert_eq!(wildcard(pattern, value), expected, "{pattern} on {value}");
        }
    }

    #[test]
    fn filters_are_joined_by_and_and_their_values_by_or() {
        let tags = Tags::from([("team".to_owned(), "blue".to_owned())]);
        let filter = |name: &str, values: &[&str]| Filter {
            name: name.into(),
            values: values.iter().map(|v| (*v).into()).collect(),
        };
        let state = |name: &str, test: Test<'_>| name == "state" && test("running");
        let check = |filters: Vec<Filter>| Filters::new(filters).unwrap().matches(Some(&tags), state);
        assert!(check(vec![filter("state", &["pending", "running"])]));
        assert!(check(vec![filter("state", &["running"]), filter("tag:team", &["green", "bl*"])]));
        assert!(!check(vec![filter("state", &["running"]), filter("tag:team", &["green"])]));
        assert!(check(vec![filter("tag-key", &["team"])]));
        assert!(!check(vec![filter("tag-key", &["owner"])]));
        assert!(check(vec![]));
    }

    #[test]
    fn unknown_filter_is_refused() {
        let filters = Filters::new(vec![Filter { name: "colour".into(), values: vec!["blue".into()] }]).unwrap();
        let error = filters.check(&["state", "tag-key"]).unwrap_err();
        assert_eq!((error.code.as_ref(), error.status), ("InvalidParameterValue", 400));
    }
}
