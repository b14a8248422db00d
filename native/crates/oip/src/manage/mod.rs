//! Everything but inference, as values: a method, a path and a body go in, a reply comes out.
//!
//! One table of routes for all doors: the HTTP door, the local door, and calls inside the process.
//! A reply is there at once, or takes a thread for a while, or waits for the control plane.

mod body;
mod logging;
pub mod metadata;
mod models;
mod path;
mod reply;
mod repository;
mod route;
mod routes;
mod shared_memory;
mod trace;

use std::sync::Arc;

use bytes::Bytes;
use kushi_core::{Error, ErrorKind};
use kushi_dataplane::{Action, DataPlane, Phase, metrics};
use route::Settings;
use tokio::sync::oneshot;

pub use models::{find, version_number};
pub use reply::Reply;
pub use route::{Category, ModelRoute, Route, VersionText, find as find_route, find_admitted};
pub use routes::routes;
pub use shared_memory::region_error;

/// How a reply comes about.
enum Begun {
    Done(Reply),
    /// Looks at files: not for an io thread.
    Slow(Box<dyn FnOnce() -> Reply + Send>),
    /// An order that the control plane carries out.
    Ordered(Action, String),
}

/// The answer to one request, for the doors.
pub async fn call(
    plane: &Arc<DataPlane>,
    inflight_bytes: usize,
    method: &str,
    path: &str,
    body: Bytes,
) -> Reply {
    match find_route(method, path) {
        Ok(route) => answer(plane, inflight_bytes, route, body).await,
        Err(refusal) => refusal,
    }
}

/// The same for a caller that has found the route already.
pub async fn answer(plane: &Arc<DataPlane>, inflight_bytes: usize, route: Route<'_>, body: Bytes) -> Reply {
    match begin(plane, inflight_bytes, route, &body) {
        Ok(Begun::Done(reply)) => reply,
        Ok(Begun::Slow(work)) => tokio::task::spawn_blocking(work).await.unwrap_or_else(|failure| {
            Reply::error(&Error::new(ErrorKind::Internal, format!("a reply was not found: {failure}")))
        }),
        Ok(Begun::Ordered(action, model)) => {
            let (answer, placed) = oneshot::channel();
            // Whoever asked may have gone.
            let answer = Box::new(move |result| drop(answer.send(result)));
            match plane.orders.place(action, &model, answer) {
                Ok(()) => placed.await.unwrap_or_else(|_| Err(lost())).into(),
                Err(error) => Reply::error(&error),
            }
        }
        Err(error) => Reply::error(&error),
    }
}

/// The same on a thread that may block.
pub fn call_blocking(
    plane: &Arc<DataPlane>,
    inflight_bytes: usize,
    method: &str,
    path: &str,
    body: &Bytes,
) -> Reply {
    let begun = match find_route(method, path) {
        Ok(route) => begin(plane, inflight_bytes, route, body),
        Err(refusal) => return refusal,
    };
    match begun {
        Ok(Begun::Done(reply)) => reply,
        Ok(Begun::Slow(work)) => work(),
        Ok(Begun::Ordered(action, model)) => {
            let (answer, placed) = oneshot::channel();
            let answer = Box::new(move |result| drop(answer.send(result)));
            match plane.orders.place(action, &model, answer) {
                Ok(()) => placed.blocking_recv().unwrap_or_else(|_| Err(lost())).into(),
                Err(error) => Reply::error(&error),
            }
        }
        Err(error) => Reply::error(&error),
    }
}

fn begin(
    plane: &Arc<DataPlane>,
    inflight_bytes: usize,
    route: Route<'_>,
    body: &Bytes,
) -> Result<Begun, Error> {
    let reply = match route {
        Route::Server => Reply::json(metadata::server(&plane.metadata)),
        Route::Live => health(plane, plane.phase() == Phase::Serving),
        Route::Ready => health(plane, plane.is_ready()),
        Route::Metrics => Reply::text(metrics::render(plane, inflight_bytes)),
        Route::AllStatistics => Reply::json(metadata::statistics(&plane.registry.runners())),
        Route::Model { name, version, what } => models::answer(plane, &name, version, what)?,
        Route::Regions { memory, region, action } => {
            shared_memory::answer(plane, memory, &region, action, body)?
        }
        Route::Settings { of, change } => {
            let change = change.then_some(&**body);
            match of {
                Settings::Log => logging::answer(plane, change)?,
                Settings::Trace(model) => trace::answer(plane, &model, change)?,
            }
        }
        Route::Index { .. } | Route::Control { .. } => return repository::begin(plane, route, body),
    };
    Ok(Begun::Done(reply))
}

fn lost() -> Error {
    Error::new(ErrorKind::Internal, "an order of the control plane was dropped unanswered")
}

fn health(plane: &DataPlane, well: bool) -> Reply {
    match plane.phase() {
        Phase::Exiting => Reply::error(&Error::new(ErrorKind::ShuttingDown, "Server exiting")),
        _ => Reply::empty(if well { 200 } else { 400 }),
    }
}
