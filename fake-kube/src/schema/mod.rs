//! One model of types for built-in kinds and custom resource definitions.
//!
//! A [`Schema`] says what a value may be, how lists merge, what is filled in and which rules hold. `shapes.rs` reads the
//! built-in kinds, `structural.rs` reads `openAPIV3Schema`; the other files walk values along it.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

pub(crate) mod cel;
pub(crate) mod custom;
pub(crate) mod decode;
pub(crate) mod default;
pub(crate) mod shapes;
pub(crate) mod structural;
pub(crate) mod validate;

/// What a value may be.
#[derive(Debug)]
pub(crate) struct Schema {
    pub(crate) shape: Shape,
    pub(crate) nullable: bool,
    pub(crate) required: Vec<String>,
    pub(crate) default: Option<Value>,
    pub(crate) embedded: bool,
    /// Constraints of a custom resource definition.
    pub(crate) checks: Option<Box<validate::Checks>>,
    /// `x-kubernetes-validations`.
    pub(crate) rules: Vec<cel::Rule>,
    pub(crate) passed: cel::Passed,
    /// Whether this node or one below it has a default, so that walks may stop early.
    pub(crate) has_defaults: bool,
    /// Likewise for rules.
    pub(crate) has_rules: bool,
}

/// The structure of a value.
#[derive(Debug)]
pub(crate) enum Shape {
    /// Anything; kept as it is.
    Any,
    /// A struct: known fields.
    Struct {
        /// Name of the Go type of built-in kinds; messages show it.
        name: String,
        fields: BTreeMap<String, Arc<Schema>>,
        /// Unknown fields are kept.
        open: bool,
        /// Owned as a whole by server-side apply.
        atomic: bool,
    },
    /// A map with keys of the user's choice.
    Map {
        values: Arc<Schema>,
        atomic: bool,
    },
    List {
        items: Arc<Schema>,
        kind: ListKind,
        strategic: ListKind,
    },
    Scalar(Scalar),
}

/// How a list merges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListKind {
    Atomic,
    Set,
    Map(Vec<String>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scalar {
    Text,
    Int32,
    Int64,
    Number,
    Bool,
    IntOrString,
    Quantity,
    /// Whole seconds.
    Time,
    MicroTime,
    Bytes,
}

impl Schema {
    pub(crate) fn of(shape: Shape) -> Self {
        Self {
            shape,
            nullable: false,
            required: Vec::new(),
            default: None,
            embedded: false,
            checks: None,
            rules: Vec::new(),
            passed: cel::Passed::default(),
            has_defaults: false,
            has_rules: false,
        }
    }

    /// The schema of a field of a struct or a value of a map.
    pub(crate) fn field(&self, name: &str) -> Option<&Arc<Schema>> {
        match &self.shape {
            Shape::Struct { fields, .. } => fields.get(name),
            Shape::Map { values, .. } => Some(values),
            _ => None,
        }
    }
}
