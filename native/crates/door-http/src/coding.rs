//! Whether the body of a request is compressed, and its answer will be, by the rules of Triton.

use bytes::Bytes;
use hyper::HeaderMap;
use hyper::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HeaderValue};
use kushi_core::Error;
use kushi_net::{Coding, Net, Owner, Reservation};

use crate::HttpContext;
use crate::answer::HttpAnswer;
use crate::refusal::Refusal;

/// Above it little is gained for much time, below it numbers hardly shrink.
const LEVEL: u32 = 2;

/// Whether the body of a request is compressed.
pub(crate) fn is_compressed(content_encoding: Option<&HeaderValue>) -> Result<bool, Refusal> {
    let Some(coding) = content_encoding else { return Ok(false) };
    let is = |name: &str| coding.as_bytes().eq_ignore_ascii_case(name.as_bytes());
    if is("gzip") || is("deflate") {
        return Ok(true);
    }
    if is("identity") || coding.is_empty() {
        return Ok(false);
    }
    Err(Refusal::UnknownCoding)
}

/// The body that was compressed; the header tells in which format, as Triton has it.
pub(crate) async fn decompressed(
    body: Bytes,
    reservation: Reservation,
    context: &HttpContext,
    owner: Owner,
) -> Result<(Bytes, Reservation), Error> {
    let max_bytes = context.http.limits.max_input_bytes;
    let found = context.io.net.decompressed(body, max_bytes, reservation, owner).await?;
    found.ok_or_else(|| {
        Error::invalid(format!(
            "Decompressed data size exceeds the maximum allowed value of {max_bytes} bytes. Use \
             --http-max-input-size to increase the limit."
        ))
    })
}

/// The coding of most weight that a client accepts, the first of several; `None` is that of no compression.
pub(crate) fn accepted(headers: &HeaderMap) -> Option<Coding> {
    let (mut coding, mut most) = (None, 0.0);
    for value in headers.get_all(ACCEPT_ENCODING) {
        for offer in value.to_str().unwrap_or_default().split(',') {
            let (name, weight) = match offer.split_once(';') {
                None => (offer, Some(1.0)),
                Some((name, parameter)) => (name, weight(parameter)),
            };
            let is = |known: &str| name.trim().eq_ignore_ascii_case(known);
            let offered = match () {
                () if is("gzip") => Some(Coding::Gzip),
                () if is("deflate") => Some(Coding::Deflate),
                () if is("identity") => None,
                () => continue,
            };
            if let Some(weight) = weight.filter(|&weight| weight > most) {
                (coding, most) = (offered, weight);
            }
        }
    }
    coding
}

fn weight(parameter: &str) -> Option<f64> {
    parameter.trim().strip_prefix("q=")?.parse().ok()
}

/// Whether it is worth while to compress an answer.
pub(crate) fn is_worth_while(answer: &HttpAnswer) -> bool {
    answer.body().left() >= Coding::LEAST_BYTES
}

/// The compressed answer.
pub(crate) async fn coded(mut answer: HttpAnswer, coding: Coding, net: &Net, owner: Owner) -> HttpAnswer {
    match net.compressed(answer.body().pieces(), coding, LEVEL, owner).await {
        Ok(compressed) => {
            answer.body_mut().replace(compressed);
            answer.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
        }
        Err(error) => log::debug!("an answer is sent as it is, it could not be compressed: {error}"),
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(values: &[&'static str]) -> Option<Coding> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(ACCEPT_ENCODING, HeaderValue::from_static(value));
        }
        accepted(&headers)
    }

    #[test]
    fn the_coding_of_most_weight_is_taken_and_the_first_of_several() {
        use Coding::{Deflate, Gzip};
        for (values, expected) in [
            (&[][..], None),
            (&[""], None),
            (&["gzip"], Some(Gzip)),
            (&["deflate"], Some(Deflate)),
            (&["identity"], None),
            (&["gzip, deflate"], Some(Gzip)),
            (&["deflate,gzip"], Some(Deflate)),
            (&["identity, gzip"], None),
            (&["br, zstd, GZIP"], Some(Gzip)),
            (&["gzip;q=0.5, deflate;q=0.8"], Some(Deflate)),
            (&["gzip;q=0.5, deflate"], Some(Deflate)),
            (&["gzip;q=0.5, identity;q=0.6"], None),
            (&["gzip ; q=0.6, identity;q=0.5"], Some(Gzip)),
            (&["gzip;q=0"], None),
            (&["gzip;q=0, deflate;q=0.001"], Some(Deflate)),
            (&["gzip;q=high, deflate;q=0.1"], Some(Deflate)),
            (&["gzip;level=9"], None),
            (&["gzip;q=nan"], None),
            (&["*"], None),
            (&["*;q=1, gzip;q=0.1"], Some(Gzip)),
            (&["gzip;q=0.1", "deflate"], Some(Deflate)),
        ] {
            assert_eq!(accepts(values), expected, "{values:?}");
        }
    }
}
