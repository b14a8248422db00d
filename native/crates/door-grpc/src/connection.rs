//! One connection: its handshake, its calls, and its end.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use h2::server::{self, Connection, SendResponse};
use h2::{Reason, RecvStream};
use http::Request;
use kushi_core::os_text;
use kushi_dataplane::DoorKind;
use kushi_net::{Entered, Guest, Socket};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use crate::call;
use crate::context::GrpcContext;
use crate::keep_alive::{KeepAliveTimer, Told};
use crate::line::{Line, OpenCall};
use crate::watched::WatchedSocket;

/// What may come before it is asked for: of one call, and of all on a connection.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;
const FRAME_BYTES: u32 = 64 << 10;
const MAX_HEADER_BYTES: u32 = 16 << 10;
/// Calls that were given up and whose frames may still come.
const MOST_RESET: usize = 64;
/// Of a client's preface.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(20);

/// Serves one connection until it ends.
pub(crate) async fn serve(context: Rc<GrpcContext>, socket: Socket, guest: &Guest) {
    let ready = match socket {
        Socket::Tcp(stream) => match stream.set_nodelay(true).and_then(|()| TcpStream::from_std(stream)) {
            Ok(stream) => return serve_tcp(context, stream, guest).await,
            Err(error) => error,
        },
        Socket::Unix(stream) => match UnixStream::from_std(stream) {
            Ok(stream) => return drive(context, stream, guest).await,
            Err(error) => error,
        },
    };
    log::debug!("a connection was lost before its first call: {}", os_text(&ready));
}

async fn serve_tcp(context: Rc<GrpcContext>, stream: TcpStream, guest: &Guest) {
    let Some(tls) = context.grpc.tls.clone() else { return drive(context, stream, guest).await };
    let client = stream.peer_addr().ok();
    let patience = context.io.net.limits.head_timeout;
    // Boxed: plain connections do not set aside the room for it.
    match Box::pin(context.io.handshakes.shake(&tls, stream, patience)).await {
        Ok(stream) => Box::pin(drive(context, stream, guest)).await,
        Err(error) => tls.note_failed(&error, client),
    }
}

pub(crate) async fn drive(context: Rc<GrpcContext>, io: impl AsyncRead + AsyncWrite + Unpin, guest: &Guest) {
    if let Err(error) = converse(&context, io, guest).await {
        log::debug!("a gRPC connection ended: {error}");
    }
}

async fn converse(
    context: &Rc<GrpcContext>,
    io: impl AsyncRead + AsyncWrite + Unpin,
    guest: &Guest,
) -> Result<(), h2::Error> {
    let _open = context.grpc.plane.traffic.connection(DoorKind::Grpc);
    let keep_alive = &context.grpc.keep_alive;
    let line = Rc::new(Line::new(keep_alive, guest.over_limit));
    let place = context.io.connections.enter();
    context.io.look_over_connections();
    place.watch(&line.activity, guest);
    let io = WatchedSocket::new(io, context.io.clone(), line.clone());
    let Ok(connection) = timeout(HANDSHAKE_PATIENCE, builder(context).handshake::<_, Bytes>(io)).await else {
        log::debug!("a gRPC connection ended: no preface came");
        return Ok(());
    };
    let mut connection = connection?;
    let mut keep_alive_timer = KeepAliveTimer::new(keep_alive, connection.ping_pong());
    let mut state = ConnectionState { place, line, is_leaving: false, is_dismissed: false };
    loop {
        let next = poll_fn(|task| {
            state.place.remember(task.waker());
            loop {
                if state.look(&mut connection, keep_alive_timer.poll(&state.line, task)) {
                    return Poll::Ready(None);
                }
                let accepted = connection.poll_accept(task);
                // What has just been read may say so.
                if accepted.is_ready() || !state.has_to_dismiss() {
                    return accepted;
                }
            }
        });
        let Some(accepted) = next.await else { return Ok(()) };
        let (request, respond) = accepted?;
        begin(context, state.line.begin_call(), request, respond);
    }
}

fn builder(context: &GrpcContext) -> server::Builder {
    let mut builder = server::Builder::new();
    builder
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(FRAME_BYTES)
        .max_header_list_size(MAX_HEADER_BYTES)
        .max_concurrent_streams(context.grpc.limits.max_streams)
        .max_concurrent_reset_streams(MOST_RESET)
        .max_local_error_reset_streams(Some(MOST_RESET))
        .max_pending_accept_reset_streams(MOST_RESET);
    builder
}

struct ConnectionState<'a> {
    place: Entered<'a>,
    line: Rc<Line>,
    is_leaving: bool,
    is_dismissed: bool,
}

impl ConnectionState<'_> {
    /// Tells the client what is to become of the connection. True: it ends at once.
    fn look<T>(&mut self, connection: &mut Connection<T, Bytes>, told: Poll<Told>) -> bool
    where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        if self.line.activity.is_lost() {
            log::debug!("a gRPC connection ended: its client does not read, or its place was needed");
            return true;
        }
        if told == Poll::Ready(Told::End) {
            return true;
        }
        if self.has_to_dismiss() {
            self.is_dismissed = true;
            log::debug!("a gRPC connection ended: too many pings, or other frames of no call");
            connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
        }
        let has_to_leave =
            self.place.is_closing() || self.place.is_unwelcome() || told == Poll::Ready(Told::Leave);
        if has_to_leave && !self.is_leaving {
            self.is_leaving = true;
            connection.graceful_shutdown();
        }
        false
    }

    fn has_to_dismiss(&self) -> bool {
        self.line.misbehaves() && !self.is_dismissed
    }
}

fn begin(
    context: &Rc<GrpcContext>,
    open: OpenCall,
    request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
) {
    let context = context.clone();
    tokio::task::spawn_local(async move {
        if let Err(error) = call::serve(context, &open, request, respond).await {
            log::debug!("a gRPC call ended: {error}");
        }
        open.has_answered();
    });
}
