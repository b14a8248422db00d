//! Everything but inference, as values: a method, a path and a body go in, a reply comes out.
//!
//! One table of routes for all doors: the HTTP door, the local door, and calls inside the process.
//! A reply is there at once, or takes a thread for a while, or waits for the control plane.

mod body;
mod logging;
pub(crate) mod metadata;
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

use crate::house::{House, Phase};
use crate::metrics;
use crate::orders::Placed;

pub(crate) use models::{find, version_number};
pub(crate) use reply::Reply;
use route::Settings;
pub(crate) use route::{Category, ModelRoute, Route, VersionText, find as find_route, find_admitted};
pub use routes::routes;
pub(crate) use shared_memory::region_error;
pub(crate) use trace::TraceSettings;

/// How a reply comes about.
enum Begun {
    Done(Reply),
    /// Looks at files: not for an io thread.
    Slow(Box<dyn FnOnce() -> Reply + Send>),
    /// An order that the control plane carries out.
    Ordered(Placed),
}

/// The answer to one request, for the doors.
pub(crate) async fn call(house: &Arc<House>, method: &str, path: &str, body: Bytes) -> Reply {
    match find_route(method, path) {
        Ok(route) => answer(house, route, body).await,
        Err(refusal) => refusal,
    }
}

/// The same for a caller that has found the route already.
pub(crate) async fn answer(house: &Arc<House>, route: Route<'_>, body: Bytes) -> Reply {
    match begin(house, route, &body) {
        Ok(Begun::Done(reply)) => reply,
        Ok(Begun::Slow(work)) => tokio::task::spawn_blocking(work).await.unwrap_or_else(|failure| {
            Reply::error(&Error::new(ErrorKind::Internal, format!("a reply was not found: {failure}")))
        }),
        Ok(Begun::Ordered(placed)) => placed.wait().await.into(),
        Err(error) => Reply::error(&error),
    }
}

/// The same on a thread that may block.
pub(crate) fn call_blocking(house: &Arc<House>, method: &str, path: &str, body: &Bytes) -> Reply {
    let begun = match find_route(method, path) {
        Ok(route) => begin(house, route, body),
        Err(refusal) => return refusal,
    };
    match begun {
        Ok(Begun::Done(reply)) => reply,
        Ok(Begun::Slow(work)) => work(),
        Ok(Begun::Ordered(placed)) => placed.block().into(),
        Err(error) => Reply::error(&error),
    }
}

fn begin(house: &Arc<House>, route: Route<'_>, body: &Bytes) -> Result<Begun, Error> {
    let reply = match route {
        Route::Server => Reply::json(house.server_metadata.clone()),
        Route::Live => health(house, house.phase() == Phase::Serving),
        Route::Ready => health(house, house.is_ready()),
        Route::Metrics => Reply::text(metrics::render(house)),
        Route::AllStatistics => Reply::json(metadata::statistics(&house.registry.runners())),
        Route::Model { name, version, what } => models::answer(house, &name, version, what)?,
        Route::Regions { memory, region, action } => {
            shared_memory::answer(house, memory, &region, action, body)?
        }
        Route::Settings { of, change } => {
            let change = change.then_some(&**body);
            match of {
                Settings::Log => logging::answer(house, change)?,
                Settings::Trace(model) => trace::answer(house, &model, change)?,
            }
        }
        Route::Index { .. } | Route::Control { .. } => return repository::begin(house, route, body),
    };
    Ok(Begun::Done(reply))
}

fn health(house: &House, well: bool) -> Reply {
    match house.phase() {
        Phase::Exiting => Reply::error(&Error::new(ErrorKind::ShuttingDown, "Server exiting")),
        _ => Reply::empty(if well { 200 } else { 400 }),
    }
}
