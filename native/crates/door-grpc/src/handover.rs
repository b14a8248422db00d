//! Connections that another process has accepted: over a Unix socket come what was read of one so far, and the
//! connection itself, which belongs to this door from then on.

use std::io;
use std::net::TcpStream as Accepted;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as Bearer;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kushi_core::os_text;
use kushi_net::{Door, Guest, IoContext, Serving, Socket};
use kushi_shm::receive;
use tokio::io::{AsyncReadExt, Interest, join};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use crate::connection;
use crate::context::{Grpc, GrpcContext};

/// Most that may have been read of a connection.
const MOST_READ: usize = 1 << 20;
const PIECE: usize = 16 << 10;
/// For all of it to come.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) struct HandoverDoor(pub(crate) Arc<Grpc>);

struct Handed {
    read: Bytes,
    connection: Accepted,
}

impl Door for HandoverDoor {
    fn serve<'a>(&'a self, io: &'a Rc<IoContext>, socket: Socket, guest: &'a Guest) -> Serving<'a> {
        let context = GrpcContext::new(&self.0, io);
        Box::pin(async move {
            if let Err(error) = serve(context, socket, guest).await {
                log::warn!("a connection that was handed over is lost: {}", os_text(&error));
            }
        })
    }

    fn answers_when_full(&self) -> bool {
        false
    }
}

async fn serve(context: Rc<GrpcContext>, socket: Socket, guest: &Guest) -> io::Result<()> {
    let Socket::Unix(bearer) = socket else {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "it came over no Unix socket"));
    };
    let handed = timeout(PATIENCE, handed_over(bearer)).await.map_err(|_| io::ErrorKind::TimedOut)??;
    handed.connection.set_nonblocking(true)?;
    handed.connection.set_nodelay(true)?;
    let (reader, writer) = TcpStream::from_std(handed.connection)?.into_split();
    let beginning = io::Cursor::new(handed.read);
    connection::drive(context, join(beginning.chain(reader), writer), guest).await;
    Ok(())
}

/// Until the other process says no more.
async fn handed_over(bearer: Bearer) -> io::Result<Handed> {
    let bearer = UnixStream::from_std(bearer)?;
    let mut read = BytesMut::new();
    let mut connection: Option<OwnedFd> = None;
    loop {
        read.reserve(PIECE);
        let piece = bearer.async_io(Interest::READABLE, || receive(&bearer, &mut read)).await?;
        if let Some(come) = piece.descriptor
            && connection.replace(come).is_some()
        {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "expected one at a time"));
        }
        if piece.bytes == 0 {
            break;
        }
        if read.len() > MOST_READ {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "too much was read of it"));
        }
    }
    let connection = connection.ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok(Handed { read: read.freeze(), connection: connection.into() })
}
