//! The HTTP doors: the Open Inference Protocol, and metrics on a port of their own.

pub(crate) mod answer;
mod body;
pub(crate) mod body_memory;
mod document;
mod infer;
mod members;
mod request;
mod response;
pub(crate) mod restrictions;
mod shared_memory;
mod stream;

use std::convert::Infallible;
use std::rc::Rc;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use kushi_core::Error;
use kushi_oip::tensor_json;
use tokio::net::{TcpStream, UnixStream};

use crate::house::House;
use crate::http::answer::Answer;
use crate::http::body::Limits;
use crate::http::stream::Watched;
use crate::io::{Desk, HttpDoor};
use crate::listen::Socket;
use crate::manage::{self, ModelRoute, Reply, Route};
use crate::metrics;

const MAX_HEADERS: usize = 100;
/// Bounds the head of a request; bodies are read through it piece by piece.
const READ_BUFFER_BYTES: usize = 64 << 10;

/// Serves one connection until it ends.
pub(crate) async fn serve(desk: &Rc<Desk>, socket: Socket, door: HttpDoor) {
    let ended = match socket {
        Socket::Tcp(stream) => {
            let ready = stream.set_nodelay(true).and_then(|()| TcpStream::from_std(stream));
            match ready {
                Ok(stream) => drive(desk, TokioIo::new(stream), door).await,
                Err(error) => return log::debug!("a connection was lost before its first request: {error}"),
            }
        }
        Socket::Unix(stream) => match UnixStream::from_std(stream) {
            Ok(stream) => drive(desk, TokioIo::new(stream), door).await,
            Err(error) => return log::debug!("a connection was lost before its first request: {error}"),
        },
    };
    if let Err(error) = ended {
        log::debug!("a connection ended: {error}");
    }
}

async fn drive<I: Read + Write + Unpin>(desk: &Rc<Desk>, io: I, door: HttpDoor) -> hyper::Result<()> {
    let service = service_fn(|request| async {
        let answer = match door {
            HttpDoor::Inference => inference_door(desk, request).await,
            HttpDoor::Metrics => metrics_door(&desk.house, &request),
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
        answer::managed(Reply::not_found())
    } else if request.method() == Method::GET {
        answer::text(metrics::render(house))
    } else {
        answer::managed(Reply::wrong_method("GET"))
    }
}

async fn inference_door(desk: &Rc<Desk>, request: Request<Incoming>) -> Answer {
    let (head, mut body) = request.into_parts();
    let admit = |category| desk.house.restrictions.check(category, &head.headers);
    let answered = match manage::find_admitted(head.method.as_str(), head.uri.path(), admit) {
        Ok(Route::Model { name, version, what: ModelRoute::Infer }) => {
            infer::infer(desk, (&name, version), &head.headers, &mut body).await
        }
        Ok(route) => management(desk, route, &mut body).await,
        Err(refusal) => Ok(answer::managed(refusal)),
    };
    body::discard(&head.headers, body);
    answered.unwrap_or_else(|error| answer::error(&error))
}

async fn management(desk: &Rc<Desk>, route: Route<'_>, body: &mut Incoming) -> Result<Answer, Error> {
    if !route.takes_body() {
        return Ok(answer::managed(manage::answer(&desk.house, route, Bytes::new()).await));
    }
    let limits = Limits { max_bytes: desk.house.max_input_bytes, refusal: infer::json_too_large };
    let body = body::read(body, None, &limits, &desk.body_memory).await?;
    let answering = desk.house.begin_answer();
    let mut answer = answer::managed(manage::answer(&desk.house, route, body).await);
    answer.body_mut().until_written(answering);
    Ok(answer)
}
