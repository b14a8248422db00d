//! The kind of a failure that a server tells of.

use hyper::header::{HeaderMap, HeaderName};
use kushi_core::ErrorKind;

/// How our own server names it.
const KIND: HeaderName = HeaderName::from_static("kushi-error");

/// Several kinds have one name: `fits` tells them apart. `None`: the server is another one.
pub(crate) fn named(headers: &HeaderMap, fits: impl Fn(ErrorKind) -> bool) -> Option<ErrorKind> {
    let name = headers.get(KIND)?;
    let kinds = || ErrorKind::ALL.into_iter().filter(|kind| kind.name().as_bytes() == name.as_bytes());
    let kind = kinds().find(|&kind| fits(kind)).or_else(|| kinds().next())?;
    // Nobody here has cancelled: the server gave the request up, as it does when it closes.
    Some(if kind == ErrorKind::Cancelled { ErrorKind::ShuttingDown } else { kind })
}

/// Triton answers with one status whatever is not available; the texts tell.
pub(crate) fn unavailable(text: &str) -> ErrorKind {
    let says = |words: &str| text.contains(words);
    if says("Request timeout expired") {
        ErrorKind::DeadlineExceeded
    } else if says("not at ready state") {
        ErrorKind::ModelNotReady
    } else if says("unknown model") {
        ErrorKind::ModelNotFound
    } else if says("Server exiting") || says("Server is stopping") || says("shutting down") {
        ErrorKind::ShuttingDown
    } else {
        ErrorKind::Overloaded
    }
}
