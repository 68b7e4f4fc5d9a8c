//! Which page answers what.

use std::sync::Arc;
use std::sync::Mutex;

use axum::Router;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use node::status::Facts;
use serde::Deserialize;

use crate::AdminConfig;
use crate::liveness::Liveness;
use crate::metrics;
use crate::status::Status;

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

    /// Open on loopback, and to whoever knows the password.
    fn admits(&self, headers: &HeaderMap) -> bool {
        let Some(password) = &self.config.password else { return true };
        if self.is_loopback {
            return true;
        }
        let given = headers
            .get(header::AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.strip_prefix("Basic "))
            .and_then(decode_base64);
        let Some(given) = given else { return false };
        let given = given.splitn(2, |byte| *byte == b':').nth(1).unwrap_or_default();
        given.len() == password.len()
            && given.iter().zip(password).fold(0, |diff, (a, b)| diff | (a ^ b)) == 0
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

async fn metrics(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    if !shared.admits(&headers) {
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

async fn status(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    if !shared.admits(&headers) {
        return refuse();
    }
    axum::Json(shared.status()).into_response()
}

async fn dashboard(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    if !shared.admits(&headers) {
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
