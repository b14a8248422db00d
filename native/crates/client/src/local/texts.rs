//! What users read when the way to a server is broken: which server, what happened, what to do.

use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::time::Duration;

use kushi_core::{Error, ErrorKind, os_text};
use kushi_oip::{Hello, MAX_BODY_BYTES};

fn lost(path: &Path, text: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::ConnectionLost, format!("the engine at unix://{} {text}", path.display()))
}

pub(crate) fn closed(path: &Path, greeted: bool) -> Error {
    if greeted {
        lost(path, "closed the connection")
    } else {
        lost(
            path,
            "closed the connection at once: it may be stopping, or it serves another user's processes only",
        )
    }
}

/// Whether the other side has closed.
pub(crate) fn is_end(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

pub(crate) fn broken(path: &Path, error: &io::Error) -> Error {
    if is_end(error) {
        return closed(path, true);
    }
    lost(path, format_args!("cannot be reached any more: {}", os_text(error)))
}

pub(crate) fn unwatched(path: &Path, reason: &str) -> Error {
    lost(path, format_args!("cannot be waited for: {reason}"))
}

pub(crate) fn silent(path: &Path, patience: Duration) -> Error {
    lost(path, format_args!("does not answer: no sign of life for {} ms", patience.as_millis()))
}

pub(crate) fn violation(path: &Path, text: &str) -> Error {
    lost(path, format_args!("sent what this client cannot read: {text}"))
}

/// The server says why.
pub(crate) fn ended(path: &Path, reason: &Error) -> Error {
    lost(path, format_args!("ended the connection: {reason}"))
}

pub(crate) fn mismatch(path: &Path, theirs: &Hello, ours: u32) -> Error {
    let Hello { protocol, version } = theirs;
    let path = path.display();
    let text = format!(
        "the engine at unix://{path} is Kushi {version} and speaks version {protocol} of the local protocol, \
         expected {ours}: install Kushi {} on its side or Kushi {version} here",
        env!("CARGO_PKG_VERSION"),
    );
    Error::new(ErrorKind::Unsupported, text)
}

fn is_socket(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.file_type().is_socket())
}

pub(crate) fn cannot_connect(path: &Path, error: &io::Error) -> Error {
    let (at, error_text) = (path.display(), os_text(error));
    let text = match error.kind() {
        io::ErrorKind::NotFound => format!(
            "no engine at unix://{at}: there is no such socket: start one with 'kushi serve --local-socket={at}'"
        ),
        io::ErrorKind::ConnectionRefused if !is_socket(path) => {
            format!("unix://{at} is no socket: expected the PATH of 'kushi serve --local-socket=PATH'")
        }
        io::ErrorKind::ConnectionRefused => format!(
            "no engine at unix://{at}: the one that made the socket has ended: start it again with \
             'kushi serve --local-socket={at}'"
        ),
        io::ErrorKind::PermissionDenied => format!(
            "the engine at unix://{at} cannot be reached: {error_text}: it serves processes of its own user only"
        ),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            format!("the engine at unix://{at} takes no connections: too many wait already")
        }
        _ => format!("the engine at unix://{at} cannot be reached: {error_text}"),
    };
    Error::new(ErrorKind::ConnectionLost, text)
}

pub(crate) fn overloaded(path: &Path, calls: usize, bytes: usize) -> Error {
    let text = format!(
        "too much waits for the engine at unix://{}: {calls} calls, {bytes} bytes not yet sent",
        path.display()
    );
    Error::new(ErrorKind::Overloaded, text)
}

pub(crate) fn no_room(model: &str, bytes: usize) -> Error {
    let text = format!(
        "no shared memory for {bytes} bytes of inputs for model '{model}': one connection has room for 1024 arrays \
         and 4 GiB at a time"
    );
    Error::new(ErrorKind::Overloaded, text)
}

pub(crate) fn too_long(bytes: usize) -> Error {
    Error::invalid(format!(
        "the request takes {bytes} bytes beside its arrays, at most {MAX_BODY_BYTES} are allowed"
    ))
}

/// An answer of one kind to a call of another is a violation, which is found earlier.
pub(crate) fn mixed_up() -> Error {
    Error::new(ErrorKind::Internal, "the answer belongs to another call")
}

pub fn client_closed() -> Error {
    Error::new(ErrorKind::ConnectionLost, "the client is closed")
}
