//! Which page answers what.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::Mutex;

use axum::extract::{ConnectInfo, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use node::status::{Door, Facts};
use serde::Deserialize;

use crate::AdminConfig;
use crate::events::Events;
use crate::liveness::Liveness;
use crate::metrics;
use crate::status::Status;

/// The client's address.
type ClientAddress = Option<Extension<ConnectInfo<SocketAddr>>>;

/// What the credentials of a request are worth.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Check {
    Right,
    Wrong,
    Missing,
}

pub(crate) struct Shared {
    config: AdminConfig,
    facts: Arc<dyn Facts>,
    is_loopback: bool,
    liveness: Mutex<Liveness>,
}

impl Shared {
    pub(crate) fn new(
        config: AdminConfig,
        facts: Arc<dyn Facts>,
        is_loopback: bool,
    ) -> Arc<Shared> {
        Arc::new(Shared { config, facts, is_loopback, liveness: Mutex::default() })
    }

    fn status(&self) -> Status {
        Status::of(&*self.facts, self.config.version)
    }

    /// True on loopback, and for the right password.
    fn admits(&self, headers: &HeaderMap, from: ClientAddress) -> bool {
        match self.check(headers) {
            Check::Right => true,
            Check::Missing => false,
            Check::Wrong => {
                if let Some(Extension(ConnectInfo(from))) = from {
                    self.facts.note_wrong_password(from.ip(), Door::Admin);
                }
                false
            }
        }
    }

    fn check(&self, headers: &HeaderMap) -> Check {
        let Some(password) = &self.config.password else { return Check::Right };
        if self.is_loopback {
            return Check::Right;
        }
        let Some(header) = headers.get(header::AUTHORIZATION) else { return Check::Missing };
        let given = header
            .to_str()
            .ok()
            .and_then(|value| value.strip_prefix("Basic "))
            .and_then(decode_base64);
        let Some(given) = given else { return Check::Wrong };
        let given = given.splitn(2, |byte| *byte == b':').nth(1).unwrap_or_default();
        let is_equal = given.len() == password.len()
            && given.iter().zip(password).fold(0, |diff, (a, b)| diff | (a ^ b)) == 0;
        if is_equal { Check::Right } else { Check::Wrong }
    }

    fn is_live(&self) -> bool {
        let (looks, now_ms) = (self.facts.looks(), self.facts.status().up.0);
        self.facts.nudge();
        self.liveness.lock().is_ok_and(|mut liveness| liveness.note(&looks, now_ms))
    }
}

pub(crate) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/", get(dashboard))
        .route("/livez", get(livez))
        .route("/healthz", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/api/v1/status", get(status))
        .route("/api/v1/events", get(events))
        .with_state(shared)
}

#[derive(Deserialize)]
struct Detail {
    verbose: Option<String>,
}

async fn livez(State(shared): State<Arc<Shared>>) -> Response {
    if shared.is_live() {
        (StatusCode::OK, "ok\n").into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "workers do not turn\n").into_response()
    }
}

async fn readyz(State(shared): State<Arc<Shared>>, Query(detail): Query<Detail>) -> Response {
    let status = shared.status();
    let helpful = status.members.iter().filter(|member| member.up && !member.loading).count();
    let checks = [
        ("formed", status.phase == "formed"),
        ("quorum", helpful >= status.quorum),
        ("memory", !status.loading),
    ];
    let code = if status.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let mut text = String::new();
    if detail.verbose.is_some() {
        for (name, good) in checks {
            let mark = if good { "[+]" } else { "[-]" };
            let word = if good { "ok" } else { "failed" };
            text.push_str(&format!("{mark}{name} {word}\n"));
        }
    }
    text.push_str(if status.ready { "ready\n" } else { "not ready\n" });
    (code, text).into_response()
}

fn refuse() -> Response {
    let ask = [(header::WWW_AUTHENTICATE, "Basic realm=\"palimpsest\"")];
    (StatusCode::UNAUTHORIZED, ask, "the password of this node is needed\n").into_response()
}

async fn metrics(
    State(shared): State<Arc<Shared>>,
    from: ClientAddress,
    headers: HeaderMap,
) -> Response {
    if !shared.admits(&headers, from) {
        return refuse();
    }
    match metrics::render(&shared.status()) {
        Ok(text) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn status(
    State(shared): State<Arc<Shared>>,
    from: ClientAddress,
    headers: HeaderMap,
) -> Response {
    if !shared.admits(&headers, from) {
        return refuse();
    }
    axum::Json(shared.status()).into_response()
}

async fn events(
    State(shared): State<Arc<Shared>>,
    from: ClientAddress,
    headers: HeaderMap,
) -> Response {
    if !shared.admits(&headers, from) {
        return refuse();
    }
    axum::Json(Events::of(&*shared.facts)).into_response()
}

async fn dashboard(
    State(shared): State<Arc<Shared>>,
    from: ClientAddress,
    headers: HeaderMap,
) -> Response {
    if !shared.admits(&headers, from) {
        return refuse();
    }
    Html(include_str!("dashboard/index.html")).into_response()
}

/// RFC 4648, section 4. Short and read once: not worth a dependency.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0_u32, 0);
    for byte in text.trim_end_matches('=').bytes() {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn basic_credentials_are_decoded() {
        assert_eq!(decode_base64("dXNlcjpwYXNz").as_deref(), Some(b"user:pass".as_slice()));
        assert_eq!(decode_base64("YQ==").as_deref(), Some(b"a".as_slice()));
        assert_eq!(decode_base64("a*"), None);
    }
}
