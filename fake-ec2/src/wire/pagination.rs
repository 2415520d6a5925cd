//! Pages: opaque tokens and limits.
//!
//! A token holds the key of the last item answered, so that items that come or go between pages cannot shift the rest.

use crate::error::ApiError;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// What a caller asked of one page.
#[derive(Debug)]
pub(crate) struct Page {
    after: Option<String>,
    size: usize,
}

/// One page and the token of the next.
#[derive(Debug)]
pub(crate) struct Paged<T> {
    pub(crate) items: Vec<T>,
    pub(crate) next: Option<String>,
}

/// How a service words its complaints.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) minimum: usize,
    pub(crate) maximum: usize,
    /// The size of a page when the caller names none.
    pub(crate) default: usize,
}

impl Page {
    // fidelity: documented(EC2 API Reference: MaxResults of each action); assumed: the wording of InvalidNextToken
    pub(crate) fn new(size: Option<i64>, token: Option<&str>, bounds: Bounds) -> Result<Self, ApiError> {
        let size = match size {
            None => bounds.default,
            Some(size) if size < bounds.minimum as i64 => {
                let minimum = bounds.minimum;
                return Err(ApiError::invalid_value(format!(
                    "Value ( {size} ) for parameter maxResults is invalid. Expecting a value greater than or equal to {minimum}."
                )));
            }
            Some(size) if size > bounds.maximum as i64 => {
                let maximum = bounds.maximum;
                return Err(ApiError::invalid_value(format!(
                    "Value ( {size} ) for parameter maxResults is invalid. Expecting a value less than or equal to {maximum}."
                )));
            }
            Some(size) => size as usize,
        };
        let decode = |token: &str| {
            let bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
            String::from_utf8(bytes).ok()?.strip_prefix("after:").map(str::to_owned)
        };
        let after = match token.filter(|token| !token.is_empty()) {
            None => None,
            Some(token) => Some(
                decode(token)
                    .ok_or_else(|| ApiError::client("InvalidNextToken", "The specified NextToken is not valid."))?,
            ),
        };
        Ok(Self { after, size })
    }

    /// The key of the last item of the page before, for whoever can begin there instead of skipping.
    pub(crate) fn after(&self) -> Option<&str> {
        self.after.as_deref()
    }

    /// Cuts the page out of `items`, which must come in the order of their keys.
    pub(crate) fn cut<T>(&self, items: impl IntoIterator<Item = T>, key: impl Fn(&T) -> String) -> Paged<T> {
        let mut rest =
            items.into_iter().skip_while(|item| self.after.as_ref().is_some_and(|after| key(item) <= *after));
        let items: Vec<T> = rest.by_ref().take(self.size).collect();
        let more = rest.next().is_some();
        let next = items.last().filter(|_| more).map(|last| URL_SAFE_NO_PAD.encode(format!("after:{}", key(last))));
        Paged { items, next }
    }
}
