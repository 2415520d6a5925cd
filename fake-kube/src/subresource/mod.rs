//! Subresources that are more than a part of the object; `status` is a [`Part`](crate::write::Part) of the write path.

mod binding;
mod eviction;
pub(crate) mod inside;
pub(crate) mod scale;

pub(crate) use binding::set_condition;
