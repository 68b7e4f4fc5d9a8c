//! Pages and their handlers.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{ConnectInfo, Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use node::status::{CommandFacts, Facts, PasswordPort};
use serde::Deserialize;

use crate::access::{Access, Page, password_in};
use crate::cluster::Cluster;
use crate::events::Events;
use crate::group::{Order, OrderOutcome, Refused};
use crate::health;
use crate::inspect::{self, Question};
use crate::liveness::Liveness;
use crate::metrics::{self, Format};
use crate::status::Status;

pub(crate) struct Shared {
    pub(crate) version: &'static str,
    pub(crate) facts: Arc<dyn Facts>,
    pub(crate) commands: Arc<dyn CommandFacts>,
    pub(crate) access: Access,
    pub(crate) liveness: Mutex<Liveness>,
}

impl Shared {
    fn is_live(&self) -> bool {
        let (looks, now_ms) = (self.facts.looks(), self.facts.status().up.0);
        self.facts.nudge();
        self.liveness.lock().is_ok_and(|mut liveness| liveness.note(&looks, now_ms))
    }
}

type Node = State<Arc<Shared>>;

pub(crate) fn router(shared: Arc<Shared>) -> Router {
    let health = Router::new()
        .route("/livez", get(livez))
        .route("/healthz", get(livez))
        .route("/readyz", get(readyz));
    let health = guarded(health, &shared, Page::Health);
    let metrics = guarded(Router::new().route("/metrics", get(metrics)), &shared, Page::Metrics);
    let console = Router::new()
        .route("/", get(|| async { Html(include_str!("dashboard/index.html")) }))
        .route("/console.css", get(|| file("text/css", include_str!("dashboard/console.css"))))
        .route("/console.js", get(|| file("text/javascript", include_str!("dashboard/console.js"))))
        .route("/api/v1/status", get(status))
        .route("/api/v1/events", get(events))
        .route("/api/v1/cluster", get(cluster))
        .route("/api/v1/key", get(key));
    let console = guarded(console, &shared, Page::Console);
    let orders = guarded(Router::new().route("/api/v1/group", post(order)), &shared, Page::Orders);
    health.merge(metrics).merge(console).merge(orders).with_state(shared)
}

/// Lets requests through that may read pages of this kind.
fn guarded(router: Router<Arc<Shared>>, shared: &Arc<Shared>, page: Page) -> Router<Arc<Shared>> {
    let shared = Arc::clone(shared);
    router.route_layer(from_fn_with_state(shared, move |State(shared): Node, request, next| {
        guard(shared, page, request, next)
    }))
}

async fn guard(shared: Arc<Shared>, page: Page, request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip());
    let header = request.headers().get(header::AUTHORIZATION);
    let given = header.and_then(|value| value.to_str().ok()).and_then(password_in);
    match peer {
        Some(peer) if shared.access.admits(page, peer, given.as_deref()) => next.run(request).await,
        Some(peer) if header.is_some() => {
            shared.facts.note_wrong_password(peer, PasswordPort::Admin);
            refuse(page)
        }
        _ => refuse(page),
    }
}

fn refuse(page: Page) -> Response {
    let text = match page {
        Page::Metrics => "the metrics password or the clients' password is needed\n",
        Page::Health | Page::Console | Page::Orders => "the clients' password is needed\n",
    };
    let ask = [(header::WWW_AUTHENTICATE, "Basic realm=\"palimpsest\", charset=\"UTF-8\"")];
    (StatusCode::UNAUTHORIZED, ask, text).into_response()
}

#[derive(Deserialize)]
struct Detail {
    verbose: Option<String>,
    writes: Option<String>,
}

async fn livez(State(shared): Node) -> Response {
    if shared.is_live() {
        (StatusCode::OK, "ok\n").into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "workers do not turn\n").into_response()
    }
}

async fn readyz(State(shared): Node, Query(detail): Query<Detail>) -> Response {
    let question =
        health::Question { writes: detail.writes.is_some(), verbose: detail.verbose.is_some() };
    health::readiness(&shared.facts.status(), question).into_response()
}

async fn metrics(State(shared): Node, headers: HeaderMap) -> Response {
    let accept = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let format = Format::accepted(accept);
    match metrics::render(&*shared.facts, &*shared.commands, shared.version, format) {
        Ok(text) => ([(header::CONTENT_TYPE, format.content_type())], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn status(State(shared): Node) -> Response {
    axum::Json(Status::of(&*shared.facts, shared.version)).into_response()
}

async fn events(State(shared): Node) -> Response {
    axum::Json(Events::of(&*shared.facts)).into_response()
}

async fn cluster(State(shared): Node) -> Response {
    axum::Json(Cluster::of(&*shared.facts)).into_response()
}

/// Asks the own node as a client does, on a thread that may wait.
async fn key(State(shared): Node, Query(question): Query<Question>) -> Response {
    let asked = tokio::task::spawn_blocking(move || {
        let password = shared.access.password.as_deref();
        inspect::explain(shared.facts.status().listen, password, &question)
    });
    match asked.await {
        Ok(answer) => axum::Json(answer).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// Orders are JSON by their content type: no form of another site's page can send one.
async fn order(State(shared): Node, axum::Json(order): axum::Json<Order>) -> Response {
    let given = tokio::task::spawn_blocking(move || order.give(&*shared.facts)).await;
    let (code, outcome) = match given {
        Ok(Ok(epoch)) => (StatusCode::OK, Ok(epoch.0)),
        Ok(Err(Refused::Malformed(why))) => (StatusCode::BAD_REQUEST, Err(why)),
        Ok(Err(Refused::NotNow(why))) => (StatusCode::CONFLICT, Err(why)),
        Err(_) => return StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    };
    let outcome = OrderOutcome { epoch: outcome.clone().ok(), error: outcome.err() };
    (code, axum::Json(outcome)).into_response()
}

async fn file(kind: &'static str, text: &'static str) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, kind)], text)
}
