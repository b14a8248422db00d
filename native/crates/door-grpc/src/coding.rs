//! How the messages of a call are compressed, in either direction.

use http::HeaderMap;
use kushi_core::Error;
use kushi_net::{Answering, Coding, Net, Owner};

use bytes::Bytes;

use crate::framing::{HEAD_BYTES, Message, framed_as};
use crate::status::{INTERNAL, RESOURCE_EXHAUSTED, Status, UNIMPLEMENTED};

pub(crate) const REQUEST_CODING: &str = "grpc-encoding";
pub(crate) const ACCEPTED_CODINGS: &str = "grpc-accept-encoding";
/// Those of requests.
pub(crate) const KNOWN_CODINGS: &str = "identity,deflate,gzip";

/// Of answers, and zlib's level for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AnswerCoding {
    pub(crate) coding: Coding,
    level: u32,
}

/// Whether messages of the request may be compressed.
pub(crate) fn of_request(headers: &HeaderMap) -> Result<bool, Status> {
    let Some(name) = headers.get(REQUEST_CODING) else { return Ok(false) };
    match name.as_bytes() {
        b"identity" | b"" => Ok(false),
        b"gzip" | b"deflate" => Ok(true),
        other => {
            let name = String::from_utf8_lossy(other);
            let text = format!("compression '{name}' is not supported, expected gzip, deflate or identity");
            Err(Status::new(UNIMPLEMENTED, text))
        }
    }
}

/// `None`: the client takes none that is known here, or the operator wants none.
pub(crate) fn of_answer(headers: &HeaderMap, level: Option<u32>) -> Option<AnswerCoding> {
    let level = level?;
    let accepted = headers.get(ACCEPTED_CODINGS)?.to_str().ok()?;
    let accepts = |coding: &Coding| accepted.split(',').any(|name| name.trim() == coding.name());
    let coding = [Coding::Gzip, Coding::Deflate].into_iter().find(accepts)?;
    Some(AnswerCoding { coding, level })
}

/// The message that was compressed.
pub(crate) async fn decompressed(
    net: &Net,
    message: Bytes,
    most: usize,
    answering: &mut Answering,
) -> Result<Bytes, Status> {
    let reservation = answering.take_reservation();
    let broken = |error: Error| Status::new(INTERNAL, error.message);
    let room = net.limits.max_inflight_bytes;
    match net.decompressed(message, most.min(room), reservation, Owner::SERVER).await {
        Ok(Some((whole, reservation))) => {
            answering.reservation = Some(reservation);
            Ok(whole)
        }
        Ok(None) => {
            net.budget.check(most.min(room).saturating_add(1)).map_err(Status::too_large)?;
            Err(Status::new(RESOURCE_EXHAUSTED, format!("Received message larger than max ({most})")))
        }
        Err(error) if error.kind == kushi_core::ErrorKind::InvalidInput => Err(broken(error)),
        Err(error) => Err(error.into()),
    }
}

/// The message as it leaves: compressed where that is worth while.
pub(crate) async fn coded(net: &Net, message: Message, with: Option<AnswerCoding>) -> Message {
    let Some(AnswerCoding { coding, level }) = with else { return message };
    let length: usize = message.iter().map(Bytes::len).sum();
    if length < Coding::LEAST_BYTES {
        return message;
    }
    let mut pieces = message.to_vec();
    pieces[0] = pieces[0].slice(HEAD_BYTES..);
    match net.compressed(pieces, coding, level, Owner::SERVER).await {
        Ok(compressed) => framed_as(true, &[compressed]),
        Err(error) => {
            log::debug!("a message is sent as it is, it could not be compressed: {error}");
            message
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(name: &'static str, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name.parse().unwrap(), HeaderValue::from_static(value))])
    }

    #[test]
    fn a_request_is_compressed_in_a_way_that_is_known() {
        assert_eq!(of_request(&HeaderMap::new()), Ok(false));
        for (name, known) in
            [("identity", Some(false)), ("gzip", Some(true)), ("deflate", Some(true)), ("br", None)]
        {
            assert_eq!(of_request(&headers(REQUEST_CODING, name)).ok(), known, "{name}");
        }
    }

    #[test]
    fn an_answer_is_compressed_where_both_sides_want_it() {
        let accepts = |value, level| of_answer(&headers(ACCEPTED_CODINGS, value), level);
        let with = |coding| Some(AnswerCoding { coding, level: 5 });
        assert_eq!(accepts("identity, deflate, gzip", Some(5)), with(Coding::Gzip));
        assert_eq!(accepts("deflate", Some(5)), with(Coding::Deflate));
        assert_eq!(accepts("identity,br", Some(5)), None);
        assert_eq!(accepts("gzip", None), None);
        assert_eq!(of_answer(&HeaderMap::new(), Some(5)), None);
    }
}
