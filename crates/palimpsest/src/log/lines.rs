//! From an event of `tracing` to a line of text or JSON.

use std::fmt::{self, Write};
use std::time::SystemTime;

use node::events::quote;
use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::Format;

/// Writes each event as one line.
pub(super) struct Lines {
    pub(super) format: Format,
    /// The node of lines outside of any node's span.
    pub(super) node: Option<u16>,
}

/// In the extensions of a span: the node that it belongs to.
struct OfNode(u64);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Lines {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let (Some(node), Some(span)) = (fields.node(), context.span(id)) {
            span.extensions_mut().insert(OfNode(node));
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let of_span = || {
            let mut scope = context.event_scope(event)?;
            scope.find_map(|span| Some(span.extensions().get::<OfNode>()?.0))
        };
        let node = fields.node().or_else(of_span).or(self.node.map(u64::from));
        let about = event.metadata();
        let line = Line {
            time: humantime::format_rfc3339_millis(SystemTime::now()).to_string(),
            level: about.level().as_str().to_ascii_lowercase(),
            node,
            target: about.target(),
            fields,
        };
        super::send(match self.format {
            Format::Text => line.text().into_bytes(),
            Format::Json => line.json().into_bytes(),
        });
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    others: Vec<(&'static str, Value)>,
}

impl Fields {
    /// Takes out the field of this name.
    fn node(&mut self) -> Option<u64> {
        let at = self.others.iter().position(|(name, _)| *name == "node")?;
        self.others.remove(at).1.as_u64()
    }

    fn add(&mut self, field: &Field, value: Value) {
        self.others.push((field.name(), value));
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        } else {
            self.add(field, format!("{value:?}").into());
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message = value.to_string();
        } else {
            self.add(field, value.into());
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value.into());
    }
}

struct Line<'a> {
    time: String,
    level: String,
    node: Option<u64>,
    target: &'a str,
    fields: Fields,
}

impl Line<'_> {
    /// `2026-11-21T03:05:07.123Z warn  node=1 cluster: member lost peer=2`.
    fn text(&self) -> String {
        let mut out = format!("{} {:<5} ", self.time, self.level);
        if let Some(node) = self.node {
            put(&mut out, format_args!("node={node} "));
        }
        put(&mut out, format_args!("{}: ", self.target));
        // A line is a line, whatever is in the message.
        out.extend(self.fields.message.chars().map(|c| if c.is_control() { ' ' } else { c }));
        for (name, value) in &self.fields.others {
            match value {
                Value::String(text) => put(&mut out, format_args!(" {name}={}", quote(text))),
                other => put(&mut out, format_args!(" {name}={other}")),
            }
        }
        out.push('\n');
        out
    }

    fn json(&self) -> String {
        let mut out = String::from("{");
        let quoted = |text: &str| Value::from(text).to_string();
        put(&mut out, format_args!("\"time\":{}", quoted(&self.time)));
        put(&mut out, format_args!(",\"level\":{}", quoted(&self.level)));
        if let Some(node) = self.node {
            put(&mut out, format_args!(",\"node\":{node}"));
        }
        put(&mut out, format_args!(",\"target\":{}", quoted(self.target)));
        put(&mut out, format_args!(",\"message\":{}", quoted(&self.fields.message)));
        for (name, value) in &self.fields.others {
            put(&mut out, format_args!(",{}:{value}", quoted(name)));
        }
        out.push_str("}\n");
        out
    }
}

fn put(out: &mut String, text: fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a string takes everything");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> Line<'static> {
        let others = vec![("peer", 2.into()), ("reason", "connection \"closed\"\n".into())];
        Line {
            time: "2026-11-21T03:05:07.123Z".into(),
            level: "warn".into(),
            node: Some(1),
            target: "cluster",
            fields: Fields { message: "member lost\nfor now".into(), others },
        }
    }

    #[test]
    fn text_is_one_line() {
        assert_eq!(
            line().text(),
            "2026-11-21T03:05:07.123Z warn  node=1 cluster: member lost for now peer=2 \
             reason=\"connection \\\"closed\\\"\\n\"\n"
        );
    }

    #[test]
    fn json_is_one_object_per_line() {
        let text = line().json();
        assert_eq!(text.matches('\n').count(), 1);
        let parsed: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(parsed["message"], "member lost\nfor now");
        assert_eq!((&parsed["node"], &parsed["peer"]), (&1.into(), &2.into()));
        assert_eq!(parsed["reason"], "connection \"closed\"\n");
    }
}
