//! The latest events of a node: the shape of `/api/v1/events`.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use node::status::Facts;
use serde::Serialize;

/// `/api/v1/events`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Events {
    pub node: u16,
    /// Oldest first.
    pub events: Vec<Event>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Event {
    /// RFC 3339, UTC, with milliseconds.
    pub time: String,
    pub unix_ms: u64,
    pub level: &'static str,
    pub target: &'static str,
    pub message: String,
    pub fields: BTreeMap<&'static str, String>,
    /// Message and fields in one line.
    pub text: String,
}

impl Events {
    pub(crate) fn of(facts: &dyn Facts) -> Events {
        let events = facts.events().into_iter().map(Event::from).collect();
        Events { node: facts.config().id.0, events }
    }
}

impl From<node::status::NodeEvent> for Event {
    fn from(event: node::status::NodeEvent) -> Event {
        let at = UNIX_EPOCH + Duration::from_millis(event.at.0);
        Event {
            time: humantime::format_rfc3339_millis(at).to_string(),
            unix_ms: event.at.0,
            level: event.level.name(),
            target: event.target,
            text: event.text(),
            message: event.message,
            fields: event.fields.into_iter().collect(),
        }
    }
}
