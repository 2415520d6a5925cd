//! Bodies in protobuf form, read into JSON: kubectl and other Go programs send built-in kinds this way and take JSON in
//! return. Replies are never written in it.
//!
//! A body is four magic bytes and an envelope with the kind and the object. The fields of each kind are facts of the
//! published API types (`builtin/protobuf.txt`). Custom resources have no protobuf form.

use std::{collections::BTreeMap, sync::LazyLock};

use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

static TEXT: &str = include_str!("builtin/protobuf.txt");

const MAGIC: &[u8] = b"k8s\0";

/// Nesting beyond this is refused; the deepest kind has about fifteen levels.
const MAX_DEPTH: usize = 64;

/// Why a body cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProtobufError {
    #[error("the body does not begin with the magic bytes of Kubernetes' protobuf form")]
    NoMagic,
    #[error("the body ends in the middle of a field")]
    Truncated,
    #[error("a number takes more than ten bytes")]
    Number,
    #[error("field {0} has the unknown wire type {1}")]
    WireType(u64, u64),
    #[error("field {0} has another wire type than its message says")]
    Mismatch(String),
    #[error("field {0} is no valid text")]
    Text(String),
    #[error("nesting is deeper than {MAX_DEPTH}")]
    Depth,
    #[error("no kind {0:?} in version {1:?} has a protobuf form here")]
    UnknownKind(String, String),
}

/// How a field of a message is read.
#[derive(Clone, Debug)]
enum Form {
    Text,
    Whole,
    Bool,
    Double,
    Bytes,
    /// A message with the text as its only field.
    Quantity,
    IntOrString,
    Time,
    MicroTime,
    /// JSON as bytes in a message.
    Raw,
    /// A message that is a list of texts in JSON.
    Items,
    Message(&'static str),
    List(Box<Form>),
    Map(Box<Form>),
}

#[derive(Debug)]
struct Field {
    name: &'static str,
    form: Form,
    /// A zero is as good as nothing and stays out of JSON.
    omitted_when_zero: bool,
    /// Its fields stand in the parent.
    inline: bool,
}

type Message = BTreeMap<u64, Field>;

static MESSAGES: LazyLock<BTreeMap<&'static str, Message>> = LazyLock::new(|| {
    let mut messages: BTreeMap<&str, Message> = BTreeMap::new();
    let mut current = "";
    for line in TEXT.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        if !line.starts_with(' ') {
            current = words.next().unwrap_or_default();
        }
        let message = messages.entry(current).or_default();
        message.extend(words.filter_map(field));
    }
    messages
});

fn field(word: &'static str) -> Option<(u64, Field)> {
    let (number, rest) = word.split_once(':')?;
    let (name, form) = rest.split_once(':')?;
    let inline = form.ends_with('^');
    let omitted_when_zero = form.ends_with('?');
    Some((
        number.parse().ok()?,
        Field { name, form: form_of(form.trim_end_matches(['^', '?'])), omitted_when_zero, inline },
    ))
}

fn form_of(text: &'static str) -> Form {
    let inner = |open, close| text.strip_prefix(open).and_then(|rest: &str| rest.strip_suffix(close));
    match text {
        "str" => Form::Text,
        "int" => Form::Whole,
        "bool" => Form::Bool,
        "double" => Form::Double,
        "bytes" => Form::Bytes,
        "quantity" => Form::Quantity,
        "intstr" => Form::IntOrString,
        "time" => Form::Time,
        "microtime" => Form::MicroTime,
        "raw" | "raw1" => Form::Raw,
        "items" => Form::Items,
        _ => match (inner('[', ']'), inner('{', '}')) {
            (Some(items), _) => Form::List(Box::new(form_of(items))),
            (_, Some(values)) => Form::Map(Box::new(form_of(values))),
            _ => Form::Message(text),
        },
    }
}

/// One field as it stands on the wire.
#[derive(Clone, Copy)]
enum Wire<'a> {
    Number(u64),
    Fixed(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message, in their order.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn number(&mut self) -> Result<u64, ProtobufError> {
        let mut number = 0;
        for shift in (0..70).step_by(7) {
            let (byte, rest) = self.0.split_first().ok_or(ProtobufError::Truncated)?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(ProtobufError::Number)
    }

    fn bytes(&mut self, count: u64) -> Result<&'a [u8], ProtobufError> {
        let count = usize::try_from(count).map_err(|_| ProtobufError::Truncated)?;
        let (bytes, rest) = self.0.split_at_checked(count).ok_or(ProtobufError::Truncated)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn fixed<const N: usize>(&mut self) -> Result<u64, ProtobufError> {
        let bytes = self.bytes(N as u64)?;
        Ok(bytes.iter().rev().fold(0, |number, byte| (number << 8) | u64::from(*byte)))
    }

    fn next(&mut self) -> Result<Option<(u64, Wire<'a>)>, ProtobufError> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let key = self.number()?;
        let value = match key & 7 {
            0 => Wire::Number(self.number()?),
            1 => Wire::Fixed(self.fixed::<8>()?),
            2 => {
                let count = self.number()?;
                Wire::Bytes(self.bytes(count)?)
            }
            5 => Wire::Fixed(self.fixed::<4>()?),
            other => return Err(ProtobufError::WireType(key >> 3, other)),
        };
        Ok(Some((key >> 3, value)))
    }
}

/// Reads a body into the object it holds, `apiVersion` and `kind` included.
pub(crate) fn decode(body: &[u8]) -> Result<Value, ProtobufError> {
    let mut envelope = Fields(body.strip_prefix(MAGIC).ok_or(ProtobufError::NoMagic)?);
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), [].as_slice());
    while let Some((number, wire)) = envelope.next()? {
        match (number, wire) {
            (1, Wire::Bytes(type_meta)) => {
                let mut type_meta = Fields(type_meta);
                while let Some((number, wire)) = type_meta.next()? {
                    match number {
                        1 => api_version = text("apiVersion", wire)?,
                        2 => kind = text("kind", wire)?,
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(object)) => raw = object,
            _ => {}
        }
    }
    let name = message_name(&api_version, &kind);
    let message = name.and_then(|name| MESSAGES.get(name.as_str()));
    let message = message.ok_or_else(|| ProtobufError::UnknownKind(kind.clone(), api_version.clone()))?;
    let mut object = Map::new();
    object.insert("apiVersion".into(), json!(api_version));
    object.insert("kind".into(), json!(kind));
    read(message, raw, &mut object, 0)?;
    Ok(Value::Object(object))
}

/// `core.v1.Pod` for `v1` and `Pod`: packages are named for the first word of a group.
fn message_name(api_version: &str, kind: &str) -> Option<String> {
    // Options come in the version of the resource they are meant for.
    if kind == "DeleteOptions" {
        return Some("meta.v1.DeleteOptions".into());
    }
    let (group, version) = api_version.split_once('/').unwrap_or(("core", api_version));
    let package = group.split('.').next()?;
    Some(format!("{package}.{version}.{kind}"))
}

fn text(name: &str, wire: Wire) -> Result<String, ProtobufError> {
    match wire {
        Wire::Bytes(bytes) => String::from_utf8(bytes.to_vec()).map_err(|_| ProtobufError::Text(name.to_owned())),
        _ => Err(ProtobufError::Mismatch(name.to_owned())),
    }
}

/// Reads the fields of a message into a JSON object; those the message does not know are passed over.
fn read(message: &Message, bytes: &[u8], object: &mut Map<String, Value>, depth: usize) -> Result<(), ProtobufError> {
    if depth > MAX_DEPTH {
        return Err(ProtobufError::Depth);
    }
    let mut fields = Fields(bytes);
    while let Some((number, wire)) = fields.next()? {
        let Some(Field { name, form, omitted_when_zero, inline }) = message.get(&number) else { continue };
        match (form, wire) {
            (Form::Message(inner), Wire::Bytes(bytes)) if *inline => {
                if let Some(inner) = MESSAGES.get(inner) {
                    read(inner, bytes, object, depth + 1)?;
                }
            }
            (Form::List(form), wire) => {
                let place = object.entry(*name).or_insert_with(|| json!([]));
                let Some(list) = place.as_array_mut() else { continue };
                match (&**form, wire) {
                    // Numbers may come packed.
                    (Form::Whole, Wire::Bytes(packed)) => {
                        let mut packed = Fields(packed);
                        while !packed.0.is_empty() {
                            list.push(json!(packed.number()? as i64));
                        }
                    }
                    (form, wire) => list.push(value(name, form, wire, depth)?),
                }
            }
            (Form::Map(form), Wire::Bytes(entry)) => {
                let (mut key, mut found) = (String::new(), zero(form));
                let mut entry = Fields(entry);
                while let Some((number, wire)) = entry.next()? {
                    match number {
                        1 => key = text(name, wire)?,
                        2 => found = value(name, form, wire, depth)?,
                        _ => {}
                    }
                }
                object.entry(*name).or_insert_with(|| json!({}))[key] = found;
            }
            (form, wire) => {
                let found = value(name, form, wire, depth)?;
                let empty = found.is_null() || found == 0 || found == "" || found == false || found == 0.0;
                if !(*omitted_when_zero && empty) {
                    object.insert((*name).to_owned(), found);
                }
            }
        }
    }
    Ok(())
}

/// The value of a map's entry that leaves it out.
fn zero(form: &Form) -> Value {
    match form {
        Form::Text | Form::Bytes => json!(""),
        Form::Whole => json!(0),
        Form::Bool => json!(false),
        _ => Value::Null,
    }
}

fn value(name: &str, form: &Form, wire: Wire, depth: usize) -> Result<Value, ProtobufError> {
    Ok(match (form, wire) {
        (Form::Text, wire) => json!(text(name, wire)?),
        // Negative numbers come as ten bytes in two's complement.
        (Form::Whole, Wire::Number(number)) => json!(number as i64),
        (Form::Bool, Wire::Number(number)) => json!(number != 0),
        (Form::Double, Wire::Fixed(bits)) => json!(f64::from_bits(bits)),
        (Form::Bytes, Wire::Bytes(bytes)) => json!(STANDARD.encode(bytes)),
        (Form::Message(inner), Wire::Bytes(bytes)) => {
            let mut object = Map::new();
            if let Some(message) = MESSAGES.get(inner) {
                read(message, bytes, &mut object, depth + 1)?;
            }
            Value::Object(object)
        }
        (Form::Quantity, Wire::Bytes(bytes)) => {
            let mut quantity = json!("0");
            let mut fields = Fields(bytes);
            while let Some((number, wire)) = fields.next()? {
                if number == 1 {
                    quantity = json!(text(name, wire)?);
                }
            }
            quantity
        }
        (Form::IntOrString, Wire::Bytes(bytes)) => int_or_string(name, bytes)?,
        (Form::Time, Wire::Bytes(bytes)) => time(bytes, false)?,
        (Form::MicroTime, Wire::Bytes(bytes)) => time(bytes, true)?,
        (Form::Raw, Wire::Bytes(bytes)) => {
            let mut fields = Fields(bytes);
            let mut raw = Value::Null;
            while let Some((number, wire)) = fields.next()? {
                if let (1, Wire::Bytes(bytes)) = (number, wire)
                    && !bytes.is_empty()
                {
                    raw = serde_json::from_slice(bytes).map_err(|_| ProtobufError::Text(name.to_owned()))?;
                }
            }
            raw
        }
        (Form::Items, Wire::Bytes(bytes)) => {
            let mut items = Vec::new();
            let mut fields = Fields(bytes);
            while let Some((number, wire)) = fields.next()? {
                if number == 1 {
                    items.push(json!(text(name, wire)?));
                }
            }
            Value::Array(items)
        }
        _ => return Err(ProtobufError::Mismatch(name.to_owned())),
    })
}

fn int_or_string(name: &str, bytes: &[u8]) -> Result<Value, ProtobufError> {
    let (mut is_text, mut number, mut string) = (false, 0, String::new());
    let mut fields = Fields(bytes);
    while let Some((field, wire)) = fields.next()? {
        match (field, wire) {
            (1, Wire::Number(kind)) => is_text = kind == 1,
            (2, Wire::Number(whole)) => number = whole as i64,
            (3, wire) => string = text(name, wire)?,
            _ => {}
        }
    }
    Ok(if is_text { json!(string) } else { json!(number) })
}

/// Seconds and nanoseconds as an instant; nothing at all is no instant.
fn time(bytes: &[u8], micro: bool) -> Result<Value, ProtobufError> {
    let (mut seconds, mut nanoseconds) = (None, 0);
    let mut fields = Fields(bytes);
    while let Some((field, wire)) = fields.next()? {
        match (field, wire) {
            (1, Wire::Number(number)) => seconds = Some(number as i64),
            (2, Wire::Number(number)) => nanoseconds = number as i32,
            _ => {}
        }
    }
    let instant = seconds.and_then(|seconds| Timestamp::new(seconds, nanoseconds).ok());
    let format = if micro { "%Y-%m-%dT%H:%M:%S.%6fZ" } else { "%Y-%m-%dT%H:%M:%SZ" };
    Ok(instant.map_or(Value::Null, |instant| json!(instant.strftime(format).to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field with bytes.
    fn bytes(number: u8, content: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, u8::try_from(content.len()).unwrap()], content].concat()
    }

    fn body(api_version: &str, kind: &str, object: &[u8]) -> Vec<u8> {
        let type_meta = [bytes(1, api_version.as_bytes()), bytes(2, kind.as_bytes())].concat();
        [MAGIC, &bytes(1, &type_meta), &bytes(2, object)].concat()
    }

    #[test]
    fn a_pod_is_read_with_maps_lists_quantities_and_inlined_sources() {
        let quantity = bytes(2, &[bytes(1, b"cpu"), bytes(2, &bytes(1, b"100m"))].concat());
        let port = [24, 80];
        let container =
            [bytes(1, b"main"), bytes(2, b"nginx"), bytes(6, &port), bytes(8, &quantity), bytes(14, b"")].concat();
        // A volume's source is a message of its own whose fields stand in the volume.
        let volume = [bytes(1, b"data"), bytes(2, &bytes(2, b""))].concat();
        let metadata =
            [bytes(1, b"web"), bytes(3, b""), bytes(8, b""), bytes(11, &[bytes(1, b"a"), bytes(2, b"b")].concat())];
        let object =
            [bytes(1, &metadata.concat()), bytes(2, &[bytes(1, &volume), bytes(2, &container)].concat())].concat();
        let read = decode(&body("v1", "Pod", &object)).unwrap();
        assert_eq!(
            read,
            json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "web", "labels": { "a": "b" } },
                "spec": {
                    "volumes": [{ "name": "data", "emptyDir": {} }],
                    "containers": [{
                        "name": "main", "image": "nginx", "ports": [{ "containerPort": 80 }],
                        "resources": { "requests": { "cpu": "100m" } },
                    }],
                },
            })
        );
    }

    #[test]
    fn numbers_texts_or_both_and_instants_are_read() {
        let selector = [bytes(1, b"")].concat();
        let spec = [bytes(1, &[vec![8, 1], bytes(3, b"50%")].concat()), bytes(2, &selector)].concat();
        let read = decode(&body("policy/v1", "PodDisruptionBudget", &bytes(2, &spec))).unwrap();
        assert_eq!(read["spec"]["minAvailable"], "50%");
        // Minus one takes all ten bytes; 1,767,225,600 seconds are the beginning of 2026.
        let metadata = bytes(8, &[8, 0x80, 0xf2, 0xd6, 0xca, 0x06]);
        let class = [bytes(1, &metadata), vec![16, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1]].concat();
        let read = decode(&body("scheduling.k8s.io/v1", "PriorityClass", &class)).unwrap();
        assert_eq!(read["value"], -1);
        assert_eq!(read["metadata"]["creationTimestamp"], "2026-01-01T00:00:00Z");
    }

    #[test]
    fn a_claim_on_devices_is_read_as_its_own_kind_and_not_as_a_containers() {
        let exactly = [bytes(1, b"gpu.example.com"), vec![32, 2]].concat();
        let request = [bytes(1, b"gpu"), bytes(2, &exactly)].concat();
        let opaque = [bytes(1, b"gpu.example.com"), bytes(2, &bytes(1, b"{\"mode\":\"fast\"}"))].concat();
        // A configuration's source is a message of its own whose fields stand in the configuration.
        let configuration = bytes(2, &bytes(1, &opaque));
        let devices = [bytes(1, &request), bytes(3, &configuration)].concat();
        let object = [bytes(1, &bytes(1, b"one")), bytes(2, &bytes(1, &devices))].concat();
        let read = decode(&body("resource.k8s.io/v1", "ResourceClaim", &object)).unwrap();
        assert_eq!(
            read,
            json!({
                "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": { "name": "one" },
                "spec": { "devices": {
                    "requests": [{ "name": "gpu", "exactly": { "deviceClassName": "gpu.example.com", "count": 2 } }],
                    "config": [{ "opaque": { "driver": "gpu.example.com", "parameters": { "mode": "fast" } } }],
                } },
            })
        );
    }

    #[test]
    fn what_is_no_such_body_is_refused_and_never_breaks() {
        assert_eq!(decode(b"{}"), Err(ProtobufError::NoMagic));
        let widget = body("example.com/v1", "Widget", b"");
        assert_eq!(decode(&widget), Err(ProtobufError::UnknownKind("Widget".into(), "example.com/v1".into())));
        let whole = body("v1", "ConfigMap", &bytes(1, &bytes(1, b"name")));
        for end in 0..whole.len() {
            let _ = decode(&whole[..end]);
        }
        for place in MAGIC.len()..whole.len() {
            for byte in [0, 1, 7, 0x7f, 0x80, 0xff] {
                let mut broken = whole.clone();
                broken[place] = byte;
                let _ = decode(&broken);
            }
        }
    }

    #[test]
    fn every_named_message_exists() {
        fn inner(form: &Form) -> Option<&'static str> {
            match form {
                Form::Message(name) => Some(name),
                Form::List(form) | Form::Map(form) => inner(form),
                _ => None,
            }
        }
        for (name, message) in MESSAGES.iter() {
            for field in message.values() {
                assert!(inner(&field.form).is_none_or(|inner| MESSAGES.contains_key(inner)), "{name}: {field:?}");
            }
        }
    }
}
