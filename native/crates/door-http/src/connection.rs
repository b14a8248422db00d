//! One connection: its bytes, its requests one after the other, and its end.

use std::convert::Infallible;
use std::future::poll_fn;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::Request;
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper::service::{HttpService, service_fn};
use hyper_util::rt::TokioIo;
use kushi_net::{Activity, Entered, Guest, Socket, Stage};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;

use crate::body::{self, RequestBody, Rest};
use crate::context::Purpose;
use crate::limits::READ_BUFFER_BYTES;
use crate::owed::{Owed, Traced};
use crate::refusal::Refusal;
use crate::stream::WatchedSocket;
use crate::{HttpContext, head, refusal, routed};

/// How a connection was served.
enum Served {
    /// By both sides' will, or because the client broke the protocol.
    Ended(hyper::Result<()>),
    /// Too long nothing has happened, its place was needed, or its client has left.
    Overdue,
    /// It goes on, and has nothing to remember.
    Rested,
}

/// Serves one connection until it ends.
/// `tls`: whether connections over TCP speak it, where the doors have certificates.
pub(crate) async fn serve(context: &HttpContext, socket: Socket, purpose: Purpose, tls: bool, guest: &Guest) {
    let ready = match socket {
        Socket::Tcp(stream) => {
            let ready = stream.set_nodelay(true).and_then(|()| TcpStream::from_std(stream));
            match ready {
                Ok(stream) => match context.http.tls.as_ref().filter(|_| tls) {
                    None => return drive(context, stream, purpose, guest).await,
                    // Boxed: plain connections do not set aside the room for it.
                    Some(tls) => {
                        let client = stream.peer_addr().ok();
                        match Box::pin(context.io.handshakes.shake(
                            tls,
                            stream,
                            context.io.net.limits.head_timeout,
                        ))
                        .await
                        {
                            Ok(stream) => {
                                return Box::pin(drive(context, stream, purpose, guest)).await;
                            }
                            Err(error) => return tls.note_failed(&error, client),
                        }
                    }
                },
                Err(error) => error,
            }
        }
        Socket::Unix(stream) => match UnixStream::from_std(stream) {
            Ok(stream) => return drive(context, stream, purpose, guest).await,
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

async fn drive(context: &HttpContext, io: impl Wire, purpose: Purpose, guest: &Guest) {
    context.io.look_over_connections();
    let limits = &context.http.limits;
    let activity = Rc::new(Activity::new(guest.over_limit));
    let seen = &activity;
    let traced = &Rc::new(Traced::default());
    let mut service = service_fn(move |request: Request<Incoming>| async move {
        seen.enter(Stage::Work);
        let (head, body) = request.into_parts();
        let mut body = RequestBody::new(body);
        let answered = match purpose {
            _ if !head::is_framed_plainly(&head.headers) => Err(Refusal::Final(head::unknown_coding())),
            Purpose::Inference => routed::answer(context, seen, guest, &head, &mut body).await,
            Purpose::Metrics => Ok(routed::answer_metrics(context, &head)),
        };
        let answered = match answered {
            // A future of its own: those of small requests are not as large as this one.
            Err(refusal) => {
                Err(Box::pin(body::limits_first(refusal, &head.headers, &mut body, context, seen)).await)
            }
            answered => answered,
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
            answer.body_mut().until_written(context.io.net.begin_answer());
        }
        Ok::<_, Infallible>(answer.map(|chunks| Owed::new(chunks, seen, traced)))
    });
    let place = context.io.connections.enter();
    place.watch(&activity, guest);
    context.io.departures.watch(io.socket(), place.key());
    let mut io = TokioIo::new(WatchedSocket::new(io, context, seen, traced));
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
        match run(&place, &mut connection, &activity, old_buffer).await {
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

/// `old_buffer` is that of the connection which this one replaces. It is freed when this one has a buffer of its
/// own: memory that is returned in one piece can be reused in one piece.
async fn run<I, S>(
    place: &Entered<'_>,
    connection: &mut http1::Connection<I, S>,
    activity: &Activity,
    old_buffer: Bytes,
) -> Served
where
    I: Read + Write + Unpin,
    S: HttpService<Incoming> + Unpin,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    S::ResBody: 'static,
    <S::ResBody as hyper::body::Body>::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut old_buffer = Some(old_buffer);
    let mut shutting_down = false;
    poll_fn(|context| {
        if place.is_closing() && !shutting_down {
            shutting_down = true;
            Pin::new(&mut *connection).graceful_shutdown();
        }
        place.remember(context.waker());
        // First what has come: it may be what was waited for.
        if let Poll::Ready(ended) = Pin::new(&mut *connection).poll(context) {
            return Poll::Ready(Served::Ended(ended));
        }
        drop(old_buffer.take());
        if activity.is_lost() {
            Poll::Ready(Served::Overdue)
        } else if activity.take_rest() && !shutting_down {
            Poll::Ready(Served::Rested)
        } else {
            Poll::Pending
        }
    })
    .await
}
