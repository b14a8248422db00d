//! The HTTP doors: the Open Inference Protocol, and metrics on a port of their own.

pub(crate) mod answer;
mod body;
pub(crate) mod body_memory;
mod coding;
mod document;
pub(crate) mod forwarding;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod generate;
mod generate_json;
mod head;
mod infer;
mod infer_headers;
mod inputs;
mod json_length;
mod load_report;
mod members;
mod owed;
mod raw;
mod refusal;
mod request;
mod response;
pub(crate) mod restrictions;
mod shared_memory;
mod stream;

use std::convert::Infallible;
use std::future::poll_fn;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use kushi_core::{Error, ErrorKind};
use kushi_oip::tensor_json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;

use crate::activity::{Activity, Stage};
use crate::connections::Served;
use crate::house::House;
use crate::http::answer::Answer;
use crate::http::body::{Plan, RequestBody, Rest};
use crate::http::owed::Owed;
use crate::http::refusal::Refusal;
use crate::http::stream::Watched;
use crate::io::{Desk, HttpDoor};
use crate::listen::{Guest, Socket};
use crate::manage::{self, ModelRoute, Reply, Route};
use crate::metrics;
use crate::pool::Owner;

/// Bodies are read through a buffer of this, piece by piece; it bounds the head of a request too.
const READ_BUFFER_BYTES: usize = 64 << 10;

/// Serves one connection until it ends.
pub(crate) async fn serve(desk: &Rc<Desk>, socket: Socket, door: HttpDoor, guest: &Guest) {
    let ready = match socket {
        Socket::Tcp(stream) => {
            let ready = stream.set_nodelay(true).and_then(|()| TcpStream::from_std(stream));
            match ready {
                Ok(stream) => match &desk.house.tls {
                    None => return drive(desk, stream, door, guest).await,
                    // Boxed: plain connections do not set aside the room for it.
                    Some(tls) => {
                        let client = stream.peer_addr().ok();
                        match Box::pin(desk.handshakes.shake(tls, stream, desk.house.limits.head_timeout))
                            .await
                        {
                            Ok(stream) => {
                                return Box::pin(drive(desk, stream, door, guest)).await;
                            }
                            Err(error) => return tls.note_failed(&error, client),
                        }
                    }
                },
                Err(error) => error,
            }
        }
        Socket::Unix(stream) => match UnixStream::from_std(stream) {
            Ok(stream) => return drive(desk, stream, door, guest).await,
            Err(error) => error,
        },
    };
    log::debug!("a connection was lost before its first request: {ready}");
}

/// A connection's bytes, and the socket that they come from.
trait Wire: AsyncRead + AsyncWrite + Unpin {
    fn socket(&self) -> BorrowedFd<'_>;
}

impl Wire for TcpStream {
    fn socket(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }
}

impl Wire for UnixStream {
    fn socket(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }
}

impl Wire for TlsStream<TcpStream> {
    fn socket(&self) -> BorrowedFd<'_> {
        self.get_ref().0.as_fd()
    }
}

async fn drive(desk: &Rc<Desk>, io: impl Wire, door: HttpDoor, guest: &Guest) {
    desk.look_over_connections();
    let limits = &desk.house.limits;
    let activity = Rc::new(Activity::new(guest.over_limit));
    let seen = &activity;
    let mut service = service_fn(move |request: Request<Incoming>| async move {
        seen.enter(Stage::Work);
        let (head, body) = request.into_parts();
        let mut body = RequestBody::new(body);
        let answered = match door {
            _ if !head::is_framed_plainly(&head.headers) => Err(Refusal::Final(head::unknown_coding())),
            HttpDoor::Inference => inference_door(desk, seen, guest, &head, &mut body).await,
            HttpDoor::Metrics => Ok(metrics_door(&desk.house, &head)),
        };
        let (mut answer, rest) = match answered {
            Err(refusal) if refusal.is_final() => (refusal.answer(), Rest::Unread),
            Err(refusal) => (refusal.answer(), body::discard(&head.headers, body, seen)),
            Ok(answer) => (answer, body::discard(&head.headers, body, seen)),
        };
        seen.enter(if matches!(rest, Rest::Drained) { Stage::Drain } else { Stage::Idle });
        if matches!(rest, Rest::Unread) {
            refusal::last(&mut answer);
        }
        if answer.body().is_uncounted() {
            answer.body_mut().until_written(desk.house.begin_answer());
        }
        Ok::<_, Infallible>(answer.map(|chunks| Owed::new(chunks, seen)))
    });
    let place = desk.connections.enter();
    place.watch(&activity, guest.door());
    desk.departures.watch(io.socket(), place.key());
    let mut io = TokioIo::new(Watched::new(io, desk, seen));
    let mut old_buffer = Bytes::new();
    loop {
        let mut connection = http1::Builder::new()
            .keep_alive(!guest.over_limit)
            // Whoever has closed its side alone reads its answer still. That it has left is told of elsewhere.
            .half_close(true)
            .max_headers(limits.max_headers)
            .max_header_size(limits.max_head_bytes)
            .max_buf_size(READ_BUFFER_BYTES.max(limits.max_head_bytes))
            .header_read_timeout(None)
            .serve_connection(io, service);
        match place.run(&mut connection, &activity, old_buffer).await {
            Served::Ended(Ok(())) => return,
            Served::Ended(Err(error)) => return log::debug!("a connection ended: {error}"),
            Served::Overdue => {
                let stage = activity.stage();
                log::debug!(
                    "a connection ended: too long nothing has happened, its place was needed, or its client has left \
                     ({stage:?})"
                );
                if activity.misses_head() {
                    tell_of_late_head(connection.into_parts().io.into_inner()).await;
                }
                return;
            }
            // A new one has no buffers: those of the old one may be large.
            Served::Rested => {
                log::debug!("a connection gave its buffers back");
                let old = connection.into_parts();
                (io, service) = (old.io, old.service);
                io.inner_mut().unread(&old.read_buf);
                old_buffer = old.read_buf;
            }
        }
    }
}

async fn tell_of_late_head(mut io: impl AsyncWrite + Unpin) {
    let words = head::timed_out();
    // All that was written before has left: there is room for this.
    let said = |context: &mut Context<'_>| Poll::Ready(Pin::new(&mut io).poll_write(context, &words));
    // Whether it is read is the client's.
    let _ = poll_fn(said).await;
}

fn metrics_door(house: &House, head: &Parts) -> Answer {
    if head.uri.path() != "/metrics" {
        answer::managed(Reply::not_found())
    } else if head.method == Method::GET {
        answer::text(metrics::render(house))
    } else {
        answer::managed(Reply::wrong_method("GET"))
    }
}

async fn inference_door(
    desk: &Rc<Desk>,
    activity: &Rc<Activity>,
    guest: &Guest,
    head: &Parts,
    body: &mut RequestBody,
) -> Result<Answer, Refusal> {
    let admit = |category| desk.house.restrictions.check(category, &head.headers);
    match manage::find_admitted(head.method.as_str(), head.uri.path(), admit) {
        Ok(route) if guest.over_limit && !route.tells_of_health() => Err(Refusal::Final(full(guest))),
        Ok(Route::Model { name, version, what: ModelRoute::Infer }) => {
            infer::infer(desk, activity, (&name, version), &head.headers, body).await
        }
        Ok(Route::Model {
            name,
            version,
            what: what @ (ModelRoute::Generate | ModelRoute::GenerateStream),
        }) => {
            let streams = what == ModelRoute::GenerateStream;
            generate::generate(desk, activity, (&name, version), streams, &head.headers, body).await
        }
        Ok(route) => management(desk, activity, route, body).await,
        Err(refusal) => Ok(answer::managed(refusal)),
    }
}

async fn management(
    desk: &Rc<Desk>,
    activity: &Activity,
    route: Route<'_>,
    body: &mut RequestBody,
) -> Result<Answer, Refusal> {
    if !route.takes_body() {
        return Ok(answer::managed(manage::answer(&desk.house, route, Bytes::new()).await));
    }
    let plan = Plan { json_length: None, refusal: infer::json_too_large, owner: Owner::SERVER };
    let body::Received { bytes: body, mut answering } = body::read(body, &plan, desk, activity).await?;
    activity.enter(Stage::Work);
    answering.prepared();
    let mut answer = answer::managed(manage::answer(&desk.house, route, body).await);
    answer.body_mut().until_written(answering);
    Ok(answer)
}

fn full(guest: &Guest) -> Error {
    let text = format!("{} connections are open (--http-max-connections)", guest.most());
    Error::new(ErrorKind::Overloaded, text)
}
