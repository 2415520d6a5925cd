//! From a request line to what is meant.

use std::{borrow::Cow, collections::BTreeMap};

use http::Method;

/// A parsed request line.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Route {
    /// A path outside the resources: `/version`, `/api`, `/openapi/v3`, ….
    Plain(String),
    Resource(ResourceRoute),
}

/// A request for a resource.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ResourceRoute {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
}

/// Reads a path.
pub(crate) fn parse(path: &str) -> Route {
    let plain = || Route::Plain(path.trim_end_matches('/').to_owned());
    let parts: Vec<String> = path.split('/').filter(|part| !part.is_empty()).map(decode).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let (group, version, rest) = match parts.as_slice() {
        ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
        ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
        _ => return plain(),
    };
    let mut route = ResourceRoute { group: group.into(), version: version.into(), ..ResourceRoute::default() };
    let rest = match rest {
        ["namespaces", _, "status" | "finalize"] | ["namespaces", _] | ["namespaces"] => rest,
        ["namespaces", namespace, rest @ ..] => {
            route.namespace = Some((*namespace).to_owned());
            rest
        }
        _ => rest,
    };
    match rest {
        [plural] => route.plural = (*plural).to_owned(),
        [plural, name] => {
            route.plural = (*plural).to_owned();
            route.name = Some((*name).to_owned());
        }
        [plural, name, subresource] => {
            route.plural = (*plural).to_owned();
            route.name = Some((*name).to_owned());
            route.subresource = Some((*subresource).to_owned());
        }
        // A proxy takes a path of its own.
        [plural, name, "proxy", ..] => {
            route.plural = (*plural).to_owned();
            route.name = Some((*name).to_owned());
            route.subresource = Some("proxy".into());
        }
        _ => return plain(),
    }
    Route::Resource(route)
}

/// Path and query as they are written today: the older paths of watches have `watch` in them, before what is watched.
pub(crate) fn current<'a>(path: &'a str, query: &'a str) -> (Cow<'a, str>, Cow<'a, str>) {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let (head, rest) = match parts.as_slice() {
        ["api", _, "watch", rest @ ..] if !rest.is_empty() => (&parts[..2], rest),
        ["apis", _, _, "watch", rest @ ..] if !rest.is_empty() => (&parts[..3], rest),
        _ => return (path.into(), query.into()),
    };
    let mut query = format!("{query}&watch=true");
    let rest = match rest {
        ["namespaces", _, _, name] | [_, name] if rest[0] != "namespaces" || rest.len() == 4 => {
            query = format!("{query}&fieldSelector=metadata.name%3D{name}");
            &rest[..rest.len() - 1]
        }
        _ => rest,
    };
    (format!("/{}/{}", head.join("/"), rest.join("/")).into(), query.into())
}

fn decode(part: &str) -> String {
    if !part.contains('%') {
        return part.to_owned();
    }
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let [first, tail @ ..] = rest {
        let digits = tail.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.filter(|_| *first == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Reads a query; of a repeated key the last counts.
pub(crate) fn query(text: &str) -> BTreeMap<String, String> {
    form_urlencoded::parse(text.as_bytes()).into_owned().collect()
}

/// The verb of the API for a method, as audit logs name it. `None` where the method has no meaning.
pub(crate) fn verb(method: &Method, route: &ResourceRoute, watch: bool) -> Option<&'static str> {
    let named = route.name.is_some();
    Some(match (method.as_str(), named) {
        ("GET", true) => "get",
        ("GET", false) if watch => "watch",
        ("GET", false) => "list",
        ("POST", false) => "create",
        ("POST", true) if route.subresource.is_some() => "create",
        ("PUT", true) => "update",
        ("PATCH", true) => "patch",
        ("DELETE", true) => "delete",
        ("DELETE", false) => "deletecollection",
        _ => return None,
    })
}

/// The verb of a request that is refused before anybody knows what it is about.
pub(crate) fn plain_verb(method: &Method) -> &'static str {
    match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "get",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(path: &str) -> (String, Option<String>, Option<String>, Option<String>) {
        let Route::Resource(route) = parse(path) else { panic!("{path}") };
        (route.plural, route.namespace, route.name, route.subresource)
    }

    #[test]
    fn paths_are_read_into_resource_namespace_name_and_subresource() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(resource("/api/v1/pods"), ("pods".into(), None, None, None));
        assert_eq!(
            resource("/api/v1/namespaces/a/pods/b/eviction"),
            ("pods".into(), some("a"), some("b"), some("eviction"))
        );
        assert_eq!(resource("/api/v1/namespaces/a"), ("namespaces".into(), None, some("a"), None));
        assert_eq!(resource("/api/v1/namespaces/a/status"), ("namespaces".into(), None, some("a"), some("status")));
        assert_eq!(resource("/apis/karpenter.sh/v1/nodepools/x%2Fy"), ("nodepools".into(), None, some("x/y"), None));
        assert_eq!(parse("/api/v1"), Route::Plain("/api/v1".into()));
        assert_eq!(parse("/version"), Route::Plain("/version".into()));
    }
}
