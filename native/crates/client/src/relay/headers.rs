//! What of a head belongs to the message, and what to the connection that it came on.

use hyper::header::{
    CONNECTION, CONTENT_LENGTH, DATE, EXPECT, HeaderMap, HeaderName, HeaderValue, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const PROXY_AUTHENTICATE: HeaderName = HeaderName::from_static("proxy-authenticate");
const PROXY_AUTHORIZATION: HeaderName = HeaderName::from_static("proxy-authorization");

/// `Expect` is answered by whoever has read it.
pub(super) fn is_of_the_connection(name: &HeaderName) -> bool {
    [
        CONNECTION,
        KEEP_ALIVE,
        PROXY_CONNECTION,
        PROXY_AUTHENTICATE,
        PROXY_AUTHORIZATION,
        TE,
        TRAILER,
        TRANSFER_ENCODING,
        UPGRADE,
        EXPECT,
    ]
    .contains(name)
}

/// The headers that a `Connection` names, without those that frame the body.
pub(super) fn named<'a>(values: impl Iterator<Item = &'a [u8]>) -> Vec<HeaderName> {
    let names = values.flat_map(|value| value.split(|&byte| byte == b','));
    names.filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok()).collect()
}

/// The headers of an answer as they go on: whoever passes it on frames it anew and dates it.
pub(super) fn passed_on(
    status: u16,
    headers: &HeaderMap,
) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
    let connection = headers.get_all(CONNECTION);
    let named = named(connection.into_iter().map(HeaderValue::as_bytes));
    // Of several only the first, and none where it frames nothing.
    let mut has_length = headers.contains_key(TRANSFER_ENCODING) || matches!(status, 204 | 304);
    headers.iter().filter(move |&(name, _)| {
        if name == CONTENT_LENGTH {
            return !std::mem::replace(&mut has_length, true);
        }
        !(is_of_the_connection(name) || name == DATE || named.contains(name))
    })
}
