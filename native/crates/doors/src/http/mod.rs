//! The HTTP doors: the Open Inference Protocol, and metrics on a port of their own.

pub(crate) mod answer;
mod body;
pub(crate) mod body_memory;
mod document;
mod infer;
pub(crate) mod metadata;
mod request;
mod response;
mod route;
mod stream;
mod tensor_json;

use std::convert::Infallible;
use std::rc::Rc;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request};
use hyper_util::rt::TokioIo;
use kushi_core::{Error, ErrorKind, Runner, State};
use tokio::net::{TcpStream, UnixStream};

use crate::house::{House, Phase};
use crate::http::answer::Answer;
use crate::http::route::{ModelRoute, Route, VersionText};
use crate::http::stream::Watched;
use crate::io::{Desk, Purpose};
use crate::listen::Socket;
use crate::metrics;

const MAX_HEADERS: usize = 100;
/// Bounds the head of a request; bodies are read through it piece by piece.
const READ_BUFFER_BYTES: usize = 64 << 10;

/// Serves one connection until it ends.
pub(crate) async fn serve(desk: &Rc<Desk>, socket: Socket, purpose: Purpose) {
    let ended = match socket {
        Socket::Tcp(stream) => {
            let ready = stream.set_nodelay(true).and_then(|()| TcpStream::from_std(stream));
            match ready {
                Ok(stream) => drive(desk, TokioIo::new(stream), purpose).await,
                Err(error) => return log::debug!("a connection was lost before its first request: {error}"),
            }
        }
        Socket::Unix(stream) => match UnixStream::from_std(stream) {
            Ok(stream) => drive(desk, TokioIo::new(stream), purpose).await,
            Err(error) => return log::debug!("a connection was lost before its first request: {error}"),
        },
    };
    if let Err(error) = ended {
        log::debug!("a connection ended: {error}");
    }
}

async fn drive<I: Read + Write + Unpin>(desk: &Rc<Desk>, io: I, purpose: Purpose) -> hyper::Result<()> {
    let service = service_fn(|request| async {
        let answer = match purpose {
            Purpose::Inference => infer_door(desk, request).await,
            Purpose::Metrics => metrics_door(&desk.house, &request),
        };
        Ok::<_, Infallible>(answer)
    });
    let connection = http1::Builder::new()
        .max_headers(MAX_HEADERS)
        .max_buf_size(READ_BUFFER_BYTES)
        .serve_connection(Watched::new(io, desk), service);
    desk.connections.run(connection).await
}

fn metrics_door(house: &House, request: &Request<Incoming>) -> Answer {
    if request.uri().path() != "/metrics" {
        answer::refusal(404, "Not Found")
    } else if request.method() == Method::GET {
        answer::text(metrics::render(house))
    } else {
        answer::method_not_allowed(&Method::GET)
    }
}

async fn infer_door(desk: &Rc<Desk>, request: Request<Incoming>) -> Answer {
    let (head, mut body) = request.into_parts();
    let answered = match route::find(head.uri.path()) {
        None => Ok(answer::refusal(404, "Not Found")),
        Some(route) if head.method != route.method() => Ok(answer::method_not_allowed(&route.method())),
        Some(route) => found(desk, route, &head.headers, &mut body).await,
    };
    body::discard(&head.headers, body);
    answered.unwrap_or_else(|error| answer::error(&error))
}

async fn found(
    desk: &Rc<Desk>,
    route: Route<'_>,
    headers: &HeaderMap,
    body: &mut Incoming,
) -> Result<Answer, Error> {
    match route {
        Route::Server => Ok(answer::json(200, desk.house.server_metadata.clone())),
        Route::Live => Ok(health(&desk.house, desk.house.phase() == Phase::Serving)),
        Route::Ready => Ok(health(&desk.house, desk.house.is_ready())),
        Route::AllStatistics => Ok(answer::json(200, metadata::statistics(&desk.house.registry.runners()))),
        Route::Model { name, version, what: ModelRoute::Infer } => match find(&desk.house, &name, version) {
            Ok(runner) => infer::infer(desk, &runner, headers, body).await,
            Err(error) => Err(error),
        },
        Route::Model { name, version, what } => model_door(&desk.house, &name, version, what),
    }
}

fn health(house: &House, well: bool) -> Answer {
    match house.phase() {
        Phase::Exiting => answer::refusal(503, "Server exiting"),
        _ => answer::empty(if well { 200 } else { 400 }),
    }
}

fn find(house: &House, name: &str, version: VersionText<'_>) -> Result<Arc<Runner>, Error> {
    let found = house.registry.find(name, version_number(version)?);
    if found.is_err() && house.phase() == Phase::Exiting {
        // A model that is unloaded because the server closes is not an unknown one.
        return Err(Error::new(ErrorKind::ShuttingDown, "Server not ready"));
    }
    found
}

fn version_number(version: VersionText<'_>) -> Result<Option<u64>, Error> {
    let Some(text) = version else { return Ok(None) };
    match text.parse::<i64>() {
        Ok(number) => Ok(Some(number.unsigned_abs())),
        Err(_) => Err(Error::invalid(format!(
            "failed to get model version from specified version string '{text}' (details: stol), version should be \
             an integral value > 0"
        ))),
    }
}

fn model_door(
    house: &House,
    name: &str,
    version: VersionText<'_>,
    what: ModelRoute,
) -> Result<Answer, Error> {
    if what == ModelRoute::Statistics {
        return model_statistics(house, name, version);
    }
    let runner = find(house, name, version)?;
    Ok(match what {
        ModelRoute::Ready if house.phase() == Phase::Exiting => answer::refusal(503, "Server not ready"),
        ModelRoute::Ready => answer::empty(200),
        ModelRoute::Config => answer::json(200, runner.spec().config_json.clone()),
        _ => {
            let versions = match version {
                Some(_) => vec![runner.spec().version.to_string()],
                None => ready_versions(house, name),
            };
            answer::json(200, metadata::model(runner.spec(), &versions))
        }
    })
}

fn ready_versions(house: &House, name: &str) -> Vec<String> {
    let runners = house.registry.runners();
    let of_model =
        runners.iter().filter(|runner| runner.spec().name == name && runner.state() == State::Ready);
    of_model.map(|runner| runner.spec().version.to_string()).collect()
}

fn model_statistics(house: &House, name: &str, version: VersionText<'_>) -> Result<Answer, Error> {
    let number = version_number(version)?;
    let mut runners = house.registry.runners();
    runners.retain(|runner| runner.spec().name == name);
    if runners.is_empty() {
        return Err(Error::invalid(format!("requested model '{name}' is not available")));
    }
    if let Some(number) = number {
        runners.retain(|runner| runner.spec().version == number);
        if runners.is_empty() {
            return Err(Error::invalid(format!(
                "requested model version is not available for model '{name}'"
            )));
        }
    }
    Ok(answer::json(200, metadata::statistics(&runners)))
}
