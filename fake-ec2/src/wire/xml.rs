//! XML answers, written straight into one string.

use super::{Protocol, Service, content_type};
use bytes::Bytes;
use http::Response;
use jiff::Timestamp;
use std::fmt::{Display, Write};

/// More than what stands around an answer's members.
const ENVELOPE_BYTES: usize = 512;

/// A growing fragment of XML.
#[derive(Default)]
pub(crate) struct Xml(String);

impl Xml {
    pub(crate) fn new() -> Self {
        Self(String::new())
    }

    /// For an answer whose size can be told: a text of megabytes that grows by doubling is copied twice.
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self(String::with_capacity(bytes))
    }

    pub(crate) fn into_string(self) -> String {
        self.0
    }

    pub(crate) fn open(&mut self, name: &str) {
        self.0.push('<');
        self.0.push_str(name);
        self.0.push('>');
    }

    pub(crate) fn close(&mut self, name: &str) {
        self.0.push_str("</");
        self.0.push_str(name);
        self.0.push('>');
    }

    pub(crate) fn text(&mut self, name: &str, value: impl AsRef<str>) {
        self.open(name);
        escape(&mut self.0, value.as_ref());
        self.close(name);
    }

    /// A value that needs no escaping: a number or a boolean.
    pub(crate) fn value(&mut self, name: &str, value: impl Display) {
        self.open(name);
        write!(self.0, "{value}").expect("writing to a string cannot fail");
        self.close(name);
    }

    pub(crate) fn optional(&mut self, name: &str, value: Option<impl AsRef<str>>) {
        if let Some(value) = value {
            self.text(name, value);
        }
    }

    pub(crate) fn time(&mut self, name: &str, value: Timestamp) {
        self.value(name, format_args!("{value:.3}"));
    }

    pub(crate) fn element(&mut self, name: &str, content: impl FnOnce(&mut Self)) {
        self.open(name);
        content(self);
        self.close(name);
    }

    /// `<name><item>…</item>…</name>`; an empty list is an empty element.
    pub(crate) fn list<T>(
        &mut self,
        name: &str,
        items: impl IntoIterator<Item = T>,
        mut item: impl FnMut(&mut Self, T),
    ) {
        self.list_of(name, "item", items, &mut item);
    }

    /// The same with another name for the members (`member` in the query protocol).
    pub(crate) fn list_of<T>(
        &mut self,
        name: &str,
        member: &str,
        items: impl IntoIterator<Item = T>,
        mut item: impl FnMut(&mut Self, T),
    ) {
        self.open(name);
        for value in items {
            self.open(member);
            item(self, value);
            self.close(member);
        }
        self.close(name);
    }

    /// A list of plain texts.
    pub(crate) fn texts<T: AsRef<str>>(&mut self, name: &str, items: impl IntoIterator<Item = T>) {
        self.open(name);
        items.into_iter().for_each(|value| self.text("item", value));
        self.close(name);
    }

    /// XML that is known to be well-formed.
    pub(crate) fn raw(&mut self, xml: &str) {
        self.0.push_str(xml);
    }
}

/// As EC2 writes instants: UTC with milliseconds.
pub(crate) fn timestamp(at: Timestamp) -> String {
    format!("{at:.3}")
}

pub(crate) fn respond(
    protocol: Protocol,
    service: Service,
    action: &str,
    request_id: &str,
    members: String,
) -> Response<Bytes> {
    // One copy into a text of the right size: answers can be megabytes.
    let mut body = String::with_capacity(members.len() + ENVELOPE_BYTES);
    let written = match protocol {
        Protocol::Ec2Query => write!(
            body,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<{action}Response xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\">\
             <requestId>{request_id}</requestId>{members}</{action}Response>"
        ),
        _ => {
            let namespace = match service {
                Service::Iam => "https://iam.amazonaws.com/doc/2010-05-08/",
                Service::CloudFormation => "http://cloudformation.amazonaws.com/doc/2010-05-15/",
                Service::Sqs => "http://queue.amazonaws.com/doc/2012-11-05/",
                _ => "https://sts.amazonaws.com/doc/2011-06-15/",
            };
            write!(
                body,
                "<{action}Response xmlns=\"{namespace}\"><{action}Result>{members}</{action}Result><ResponseMetadata>\
                 <RequestId>{request_id}</RequestId></ResponseMetadata></{action}Response>"
            )
        }
    };
    written.expect("writing to a string cannot fail");
    Response::builder()
        .header("content-type", content_type(protocol))
        .header("x-amzn-requestid", request_id)
        .body(Bytes::from(body))
        .expect("a response of constant parts is well-formed")
}

/// The bytes that cannot stand in XML as they are. A table: most of the time an answer takes goes by here.
static SPECIAL: [bool; 256] = {
    let mut special = [false; 256];
    let mut byte = 0;
    while byte < special.len() {
        special[byte] = byte < 0x20 || matches!(byte as u8, b'<' | b'>' | b'&' | b'"' | b'\'');
        byte += 1;
    }
    special
};

pub(crate) fn escape(out: &mut String, text: &str) {
    if !text.bytes().any(|byte| SPECIAL[usize::from(byte)]) {
        out.push_str(text);
        return;
    }
    for character in text.chars() {
        match character {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            '\r' => out.push_str("&#13;"),
            '\n' | '\t' => out.push(character),
            // XML 1.0 has no way to write the other control characters.
            control if control < ' ' => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
}
