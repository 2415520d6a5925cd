//! What most Describe calls have in common: ids, filters and pages over resources in the order of their ids.

use super::{finish, page};
use crate::cloud::filter::{Filters, Test};
use crate::cloud::resource::Kind;
use crate::cloud::tags::Tags;
use crate::error::ApiError;
use crate::wire::pagination::{Page, Paged};
use crate::wire::query::Query;

/// What a Describe call asks for.
pub(super) struct Describe<'a> {
    kind: &'static Kind,
    pub(super) ids: Vec<&'a str>,
    pub(super) filters: Filters,
    page: Page,
}

impl<'a> Describe<'a> {
    /// Reads ids, filters and page, and nothing may be left over: whoever knows more parameters reads them before.
    pub(super) fn read(
        query: &Query<'a>,
        kind: &'static Kind,
        parameter: &str,
        filters: &[&str],
    ) -> Result<Self, ApiError> {
        Self::bounded(query, kind, parameter, filters, 5, 1000)
    }

    /// The same, where pages have other bounds than 5 and 1,000.
    pub(super) fn bounded(
        query: &Query<'a>,
        kind: &'static Kind,
        parameter: &str,
        known: &[&str],
        minimum: usize,
        maximum: usize,
    ) -> Result<Self, ApiError> {
        let (ids, filters) = (query.list(parameter), query.filters()?);
        let page = page(query, minimum, maximum, maximum)?;
        finish(query)?;
        filters.check(known)?;
        for id in &ids {
            kind.check(id)?;
        }
        Ok(Self { kind, ids, filters, page })
    }

    /// The page of those that are asked for, out of `items` in the order of their ids. An id that none of them has is refused.
    pub(super) fn choose<T>(
        &self,
        items: impl IntoIterator<Item = T>,
        id: impl Fn(&T) -> &str,
        tags: impl Fn(&T) -> &Tags,
        attribute: impl Fn(&T, &str, Test<'_>) -> bool,
    ) -> Result<Paged<T>, ApiError> {
        let named = |item: &T| self.ids.is_empty() || self.ids.contains(&id(item));
        let items: Vec<T> = items.into_iter().filter(named).collect();
        if let Some(missing) = self.ids.iter().find(|wanted| !items.iter().any(|item| id(item) == **wanted)) {
            return Err(self.kind.missing(missing));
        }
        let passes = |item: &T| self.filters.matches(Some(tags(item)), |name, test| attribute(item, name, test));
        Ok(self.page.cut(items.into_iter().filter(passes), |item| id(item).to_owned()))
    }
}

/// Tests a boolean as filters spell it.
pub(super) fn test_boolean(value: bool, test: Test<'_>) -> bool {
    test(if value { "true" } else { "false" })
}

/// Tests a number that may not be there.
pub(super) fn test_number(value: Option<impl ToString>, test: Test<'_>) -> bool {
    value.is_some_and(|number| test(&number.to_string()))
}
