//! `x-kubernetes-validations`: compiled when a definition is installed, run only where a value changed.
//!
//! Ratcheting follows the server: a rule that does not look at `oldSelf` says nothing about a value that is as it was.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use kube_cel::{
    KubeCelExt,
    cel::{
        Context, ExecutionError, FunctionContext, Program, Value as CelValue,
        objects::{Key, Map},
    },
};
use serde_json::Value;

use super::{ListKind, Scalar, Schema, Shape};
use crate::status::{ErrorKind, FieldError};

/// One compiled rule.
#[derive(Debug)]
pub(crate) struct Rule {
    text: String,
    program: Program,
    message: Option<String>,
    message_program: Option<Program>,
    reason: Option<String>,
    field_path: Option<String>,
    transition: bool,
    optional_old_self: bool,
}

/// Compiles the rules of one schema node.
pub(crate) fn read_rules(rules: &Value) -> Result<Vec<Rule>, String> {
    rules.as_array().into_iter().flatten().map(read_rule).collect()
}

fn read_rule(rule: &Value) -> Result<Rule, String> {
    let text = rule["rule"].as_str().unwrap_or_default().to_owned();
    let program = Program::compile(&text).map_err(|error| format!("compilation failed: {error}"))?;
    let message_program = match rule["messageExpression"].as_str() {
        Some(expression) => Some(
            Program::compile(expression).map_err(|error| format!("messageExpression compilation failed: {error}"))?,
        ),
        None => None,
    };
    Ok(Rule {
        transition: program.references().has_variable("oldSelf"),
        text,
        program,
        message: rule["message"].as_str().map(str::to_owned),
        message_program,
        reason: rule["reason"].as_str().map(str::to_owned),
        field_path: rule["fieldPath"].as_str().map(|path| path.trim_start_matches('.').to_owned()),
        optional_old_self: rule["optionalOldSelf"] == Value::Bool(true),
    })
}

/// Values that passed the rules of one schema node. Rules that do not look at the past are pure functions of the value,
/// and the same few values (label keys, short lists) come again and again.
#[derive(Debug, Default)]
pub(crate) struct Passed(Mutex<BTreeSet<String>>);

impl Passed {
    /// A thousand label keys are more than any cluster uses; twice as many would only be memory.
    const LIMIT: usize = 1_024;
    /// Longer values are rarely met twice, and cost as much to compare as to check.
    const LONGEST: usize = 1_024;

    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, text: String) {
        let mut passed = self.lock();
        if text.len() <= Self::LONGEST {
            if passed.len() >= Self::LIMIT {
                passed.clear();
            }
            passed.insert(text);
        }
    }
}

/// Evaluates rules. Holds the function table, which is costly to fill.
pub(crate) struct Evaluator {
    base: Context<'static>,
}

impl std::fmt::Debug for Evaluator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Evaluator")
    }
}

impl Evaluator {
    pub(crate) fn new() -> Self {
        let mut base = Context::default().with_all();
        base.add_function("int", int);
        Self { base }
    }

    /// Every rule that `new` breaks, given what was there before.
    pub(crate) fn check(&self, schema: &Schema, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut errors = Vec::new();
        self.walk(schema, new, old, &mut String::new(), &mut errors);
        errors
    }

    fn walk(&self, schema: &Schema, new: &Value, old: Option<&Value>, path: &mut String, errors: &mut Vec<FieldError>) {
        if !schema.has_rules || new.is_null() {
            return;
        }
        let unchanged = old == Some(new);
        if !schema.rules.is_empty() {
            self.evaluate(schema, new, old, unchanged, path, errors);
        }
        let length = path.len();
        match (&schema.shape, new) {
            (Shape::Struct { fields, .. }, Value::Object(object)) => {
                for (name, field) in fields.iter().filter(|(_, field)| field.has_rules) {
                    let Some(child) = object.get(name) else { continue };
                    if !path.is_empty() {
                        path.push('.');
                    }
                    path.push_str(name);
                    self.walk(field, child, old.and_then(|old| old.get(name)), path, errors);
                    path.truncate(length);
                }
            }
            (Shape::Map { values, .. }, Value::Object(object)) => {
                for (key, child) in object {
                    path.push_str(&format!("[{key}]"));
                    self.walk(values, child, old.and_then(|old| old.get(key)), path, errors);
                    path.truncate(length);
                }
            }
            (Shape::List { items, kind, .. }, Value::Array(list)) => {
                for (index, child) in list.iter().enumerate() {
                    path.push_str(&format!("[{index}]"));
                    // Items of an atomic list have no past of their own, but the list as a whole may be unchanged.
                    let past = match kind {
                        ListKind::Map(keys) => {
                            let old = old.and_then(Value::as_array).into_iter().flatten();
                            old.into_iter().find(|old| keys.iter().all(|key| old.get(key) == child.get(key)))
                        }
                        _ if unchanged => Some(child),
                        _ => None,
                    };
                    self.walk(items, child, past, path, errors);
                    path.truncate(length);
                }
            }
            _ => {}
        }
    }

    fn evaluate(
        &self,
        schema: &Schema,
        new: &Value,
        old: Option<&Value>,
        unchanged: bool,
        path: &str,
        errors: &mut Vec<FieldError>,
    ) {
        let due = |rule: &&Rule| {
            if rule.transition { old.is_some() || rule.optional_old_self } else { !unchanged }
        };
        let mut due = schema.rules.iter().filter(due).peekable();
        if due.peek().is_none() {
            return;
        }
        let pure = schema.rules.iter().all(|rule| !rule.transition);
        let key = pure.then(|| new.to_string());
        if key.as_ref().is_some_and(|key| schema.passed.lock().contains(key)) {
            return;
        }
        let errors_before = errors.len();
        let mut context = self.base.new_inner_scope();
        context.add_variable_from_value("self", to_cel(schema, new));
        context.add_variable_from_value("oldSelf", old.map_or(CelValue::Null, |old| to_cel(schema, old)));
        let scalar = matches!(schema.shape, Shape::Scalar(_));
        for rule in due {
            let field = match &rule.field_path {
                Some(below) if path.is_empty() => below.clone(),
                Some(below) => format!("{path}.{below}"),
                None => path.to_owned(),
            };
            let error = match rule.program.execute(&context) {
                Ok(CelValue::Bool(true)) => continue,
                Ok(_) => {
                    let spoken = rule.message_program.as_ref().and_then(|program| match program.execute(&context) {
                        Ok(CelValue::String(text)) if !text.trim().is_empty() => Some(text.to_string()),
                        _ => None,
                    });
                    let detail = spoken
                        .or_else(|| rule.message.clone())
                        .unwrap_or_else(|| format!("failed rule: {}", rule.text.trim()));
                    let value = scalar.then(|| crate::status::printed(new));
                    match rule.reason.as_deref() {
                        Some("FieldValueForbidden") => FieldError::forbidden(field, detail),
                        Some("FieldValueRequired") => FieldError::required(field, detail),
                        Some("FieldValueDuplicate") => {
                            FieldError { field, kind: ErrorKind::Duplicate, value, detail: String::new() }
                        }
                        _ => FieldError { field, kind: ErrorKind::Invalid, value, detail },
                    }
                }
                Err(error) => FieldError {
                    field: path.to_owned(),
                    kind: ErrorKind::Invalid,
                    value: Some(format!("{:?}", type_name(schema))),
                    detail: format!(
                        "{} evaluating rule: {}",
                        told(&error),
                        rule.message.as_deref().unwrap_or(rule.text.trim())
                    ),
                },
            };
            errors.push(error);
        }
        if let Some(key) = key.filter(|_| errors.len() == errors_before) {
            schema.passed.remember(key);
        }
    }
}

/// `int(…)` that fails in the server's words. What is wrong with its argument goes on to whoever asks.
fn int(function: &FunctionContext) -> Result<CelValue, ExecutionError> {
    let argument = match (&function.this, function.args.first()) {
        (Some(value), _) => value.clone(),
        (None, Some(expression)) => CelValue::resolve(expression, function.ptx)?,
        (None, None) => return Err(ExecutionError::MissingArgumentOrTarget),
    };
    let refused = |from: &str| function.error(format!("type conversion error from '{from}' to 'int'"));
    match argument {
        CelValue::Int(_) => Ok(argument),
        CelValue::UInt(number) => number.try_into().map(CelValue::Int).map_err(|_| function.error("integer overflow")),
        CelValue::Float(number) => {
            // The limits are exclusive: the next float below 2⁶³ is the largest that fits.
            if number.is_nan() || number <= -9_223_372_036_854_775_808.0 || number >= 9_223_372_036_854_775_808.0 {
                return Err(function.error("integer overflow"));
            }
            #[allow(clippy::cast_possible_truncation)] // Just compared; the fraction is cut as CEL says.
            let whole = number as i64;
            Ok(CelValue::Int(whole))
        }
        CelValue::String(text) => text.parse().map(CelValue::Int).map_err(|_| refused("string")),
        CelValue::Timestamp(time) => Ok(CelValue::Int(time.timestamp())),
        CelValue::Bool(_) => Err(refused("bool")),
        CelValue::Null => Err(refused("null_type")),
        _ => Err(ExecutionError::NoSuchOverload),
    }
}

/// An error of evaluation in the server's words.
fn told(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::NoSuchOverload => "no such overload".into(),
        ExecutionError::FunctionError { message, .. } => message.clone(),
        ExecutionError::DivisionByZero(_) => "division by zero".into(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".into(),
        ExecutionError::Overflow(..) => "integer overflow".into(),
        ExecutionError::IndexOutOfBounds(index) => format!("index out of bounds: {}", plain_text(index)),
        other => other.to_string(),
    }
}

fn plain_text(value: &CelValue) -> String {
    match value {
        CelValue::Int(number) => number.to_string(),
        CelValue::UInt(number) => number.to_string(),
        other => format!("{other:?}"),
    }
}

fn type_name(schema: &Schema) -> &'static str {
    match &schema.shape {
        Shape::Any => "",
        Shape::Struct { .. } | Shape::Map { .. } => "object",
        Shape::List { .. } => "array",
        Shape::Scalar(Scalar::Int32 | Scalar::Int64) => "integer",
        Shape::Scalar(Scalar::Number) => "number",
        Shape::Scalar(Scalar::Bool) => "boolean",
        Shape::Scalar(_) => "string",
    }
}

fn to_cel(schema: &Schema, value: &Value) -> CelValue {
    match (&schema.shape, value) {
        (Shape::Struct { fields, .. }, Value::Object(object)) => {
            let entries = object.iter().map(|(name, child)| {
                let child = fields.get(name).map_or_else(|| plain(child), |field| to_cel(field, child));
                (Key::String(Arc::new(escaped(name))), child)
            });
            CelValue::Map(Map { map: Arc::new(entries.collect()) })
        }
        (Shape::Map { values, .. }, Value::Object(object)) => {
            let entries = object.iter().map(|(key, child)| (Key::String(Arc::new(key.clone())), to_cel(values, child)));
            CelValue::Map(Map { map: Arc::new(entries.collect()) })
        }
        (Shape::List { items, .. }, Value::Array(list)) => {
            CelValue::List(Arc::new(list.iter().map(|child| to_cel(items, child)).collect()))
        }
        (Shape::Scalar(Scalar::Number), Value::Number(number)) => CelValue::Float(number.as_f64().unwrap_or(f64::NAN)),
        _ => plain(value),
    }
}

fn plain(value: &Value) -> CelValue {
    match value {
        Value::Null => CelValue::Null,
        Value::Bool(value) => CelValue::Bool(*value),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => CelValue::Int(whole),
            None => CelValue::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => CelValue::String(Arc::new(text.clone())),
        Value::Array(list) => CelValue::List(Arc::new(list.iter().map(plain).collect())),
        Value::Object(object) => {
            let entries = object.iter().map(|(key, child)| (Key::String(Arc::new(key.clone())), plain(child)));
            CelValue::Map(Map { map: Arc::new(entries.collect()) })
        }
    }
}

/// Field names that are no CEL identifiers are escaped, as the server documents for validation rules.
fn escaped(name: &str) -> String {
    const RESERVED: [&str; 20] = [
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
    ];
    if RESERVED.contains(&name) || name == "while" {
        return format!("__{name}__");
    }
    if !name.contains("__") && !name.contains(['.', '-', '/']) {
        return name.to_owned();
    }
    name.replace("__", "__underscores__").replace('.', "__dot__").replace('-', "__dash__").replace('/', "__slash__")
}
