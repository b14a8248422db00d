//! Content codings: how the body of a request is compressed, and whether its answer will be.
//!
//! Gzip and deflate, the latter in zlib's format, by the rules of Triton. Both functions that do the work take long
//! for large bodies: those are worked on aside.

use std::io::{self, Read, Write};

use bytes::Bytes;
use flate2::Compression;
use flate2::bufread::{GzDecoder, ZlibDecoder};
use flate2::write::{GzEncoder, ZlibEncoder};
use hyper::HeaderMap;
use hyper::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HeaderValue};
use kushi_core::Error;
use kushi_net::{Net, Owner, Reservation};

use crate::HttpContext;
use crate::answer::Answer;
use crate::refusal::Refusal;

/// What is worked on where it arrives: about as long as an inference may take there.
const AT_ONCE_BYTES: usize = 16 << 10;
/// Made between two looks at whether there is room for more.
const STEP_BYTES: u64 = 256 << 10;
/// Smaller answers fit into one packet anyway.
const LEAST_BYTES: usize = 1 << 10;
/// Above it little is gained for much time, below it numbers hardly shrink.
const LEVEL: Compression = Compression::new(2);
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    Gzip,
    Deflate,
}

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

/// The body that was compressed; the header tells in which format, as Triton has it. What is made of it is reserved
/// as it is made, wherever that is.
pub(crate) async fn decompressed(
    body: Bytes,
    mut reservation: Reservation,
    context: &HttpContext,
    owner: Owner,
) -> Result<(Bytes, Reservation), Error> {
    let max_bytes = context.http.limits.max_input_bytes;
    let at_once = max_bytes.min(AT_ONCE_BYTES);
    if body.len() <= at_once
        && let Some(whole) = decompress(&body, at_once, &mut reservation)?
    {
        return Ok((whole, reservation));
    }
    let length = body.len();
    let work = move |_: &_| Ok::<_, Error>((decompress(&body, max_bytes, &mut reservation)?, reservation));
    match context.io.net.pool.run(owner, length, work).await?? {
        (Some(whole), reservation) => Ok((whole, reservation)),
        (None, _) => Err(Error::invalid(format!(
            "Decompressed data size exceeds the maximum allowed value of {max_bytes} bytes. Use \
             --http-max-input-size to increase the limit."
        ))),
    }
}

/// `None`: these are more than `max_bytes`, of which no more than one was made. What follows the end of the
/// compressed data is not looked at.
fn decompress(body: &[u8], max_bytes: usize, reservation: &mut Reservation) -> Result<Option<Bytes>, Error> {
    if body.is_empty() {
        return Err(Error::invalid("nothing to be decompressed"));
    }
    if body.starts_with(&GZIP_MAGIC) {
        read_whole(GzDecoder::new(body), max_bytes, reservation)
    } else {
        read_whole(ZlibDecoder::new(body), max_bytes, reservation)
    }
}

fn read_whole(
    decoder: impl Read,
    max_bytes: usize,
    reservation: &mut Reservation,
) -> Result<Option<Bytes>, Error> {
    let mut decoder = decoder.take(max_bytes as u64 + 1);
    let mut whole = Vec::new();
    loop {
        let read = decoder.by_ref().take(STEP_BYTES).read_to_end(&mut whole);
        if whole.len() > max_bytes {
            return Ok(None);
        }
        let broken = |error| Error::invalid(format!("failed to decompress the request body: {error}"));
        let count = read.map_err(broken)?;
        reservation.cover(whole.len())?;
        if (count as u64) < STEP_BYTES {
            reservation.settle(whole.len());
            return Ok(Some(whole.into()));
        }
    }
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
pub(crate) fn is_worth_while(answer: &Answer) -> bool {
    answer.body().left() >= LEAST_BYTES
}

/// The compressed answer.
pub(crate) async fn coded(mut answer: Answer, coding: Coding, net: &Net, owner: Owner) -> Answer {
    let pieces = answer.body().pieces();
    let length: usize = pieces.iter().map(Bytes::len).sum();
    let compressed = if length <= AT_ONCE_BYTES {
        compress(&pieces, coding)
    } else {
        let work = net.pool.run(owner, length, move |_| compress(&pieces, coding));
        work.await.unwrap_or_else(|error| Err(io::Error::other(error)))
    };
    match compressed {
        Ok(compressed) => {
            answer.body_mut().replace(compressed);
            let name = match coding {
                Coding::Gzip => "gzip",
                Coding::Deflate => "deflate",
            };
            answer.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static(name));
        }
        Err(error) => log::debug!("an answer is sent as it is, it could not be compressed: {error}"),
    }
    answer
}

fn compress(pieces: &[Bytes], coding: Coding) -> io::Result<Bytes> {
    let room = pieces.iter().map(Bytes::len).sum::<usize>() / 2;
    let out = Vec::with_capacity(room);
    let whole = match coding {
        Coding::Gzip => written(GzEncoder::new(out, LEVEL), pieces)?.finish()?,
        Coding::Deflate => written(ZlibEncoder::new(out, LEVEL), pieces)?.finish()?,
    };
    Ok(whole.into())
}

fn written<W: Write>(mut encoder: W, pieces: &[Bytes]) -> io::Result<W> {
    pieces.iter().try_for_each(|piece| encoder.write_all(piece))?;
    Ok(encoder)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hyper::header::HeaderMap;
    use kushi_core::ErrorKind;
    use proptest::prelude::*;

    use kushi_net::Budget;

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

    fn read(body: &[u8], max_bytes: usize) -> Result<Option<Bytes>, Error> {
        decompress(body, max_bytes, &mut Arc::new(Budget::new(1 << 30)).open())
    }

    fn pieces(parts: &[&[u8]]) -> Vec<Bytes> {
        parts.iter().map(|part| Bytes::copy_from_slice(part)).collect()
    }

    #[test]
    fn what_is_compressed_reads_back_up_to_the_last_byte_allowed() {
        let plain = b"abc".repeat(10_000);
        for coding in [Coding::Gzip, Coding::Deflate] {
            let body = compress(&pieces(&[&plain[..7], b"", &plain[7..]]), coding).unwrap();
            assert!(body.len() < plain.len() / 10);
            assert_eq!(read(&body, plain.len()).unwrap().unwrap(), plain);
            assert_eq!(read(&body, plain.len() - 1).unwrap(), None);
        }
    }

    #[test]
    fn what_is_made_of_a_body_is_reserved_as_it_is_made() {
        let budget = Arc::new(Budget::new(1 << 20));
        for (others, size, kind) in
            [(500_000, 700_000, ErrorKind::Overloaded), (0, 4 << 20, ErrorKind::InvalidInput)]
        {
            let bomb = compress(&pieces(&[&vec![0; size]]), Coding::Gzip).unwrap();
            let (mut other, mut reservation) = (budget.open(), budget.open());
            other.cover(others).unwrap();
            let error = decompress(&bomb, usize::MAX >> 1, &mut reservation).unwrap_err();
            assert_eq!(error.kind, kind);
            drop((other, reservation));
            assert_eq!(budget.held(), 0);
        }
        let fits = compress(&pieces(&[&vec![0; 700_000]]), Coding::Deflate).unwrap();
        let mut reservation = budget.open();
        assert_eq!(
            decompress(&fits, 1 << 20, &mut reservation).unwrap().map(|whole| whole.len()),
            Some(700_000)
        );
        assert_eq!(budget.held(), 700_000);
    }

    #[test]
    fn every_truncation_is_refused_and_what_follows_the_end_is_not() {
        for coding in [Coding::Gzip, Coding::Deflate] {
            let body = compress(&pieces(&[b"hello, hello, hello"]), coding).unwrap();
            for length in 0..body.len() {
                let error = read(&body[..length], 100).unwrap_err();
                assert_eq!(error.kind, ErrorKind::InvalidInput, "{coding:?} {length}");
            }
            let more = [&body[..], b"garbage"].concat();
            assert_eq!(read(&more, 100).unwrap().unwrap(), "hello, hello, hello");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..100), gzip: bool) {
            let magic: &[u8] = if gzip { &[0x1f, 0x8b, 8, 0] } else { &[0x78, 0x9c] };
            let body = [magic, &bytes].concat();
            if let Ok(Some(whole)) = read(&body, 1000) {
                prop_assert!(whole.len() <= 1000);
            }
        }

        #[test]
        fn any_change_of_a_compressed_body_is_refused_or_harmless(at in 0_usize..60, byte: u8, gzip: bool) {
            let coding = if gzip { Coding::Gzip } else { Coding::Deflate };
            let plain = b"0123456789 0123456789 abcdefghijklmnopqrstuvwxyz";
            let mut body = compress(&pieces(&[plain]), coding).unwrap().to_vec();
            let at = at % body.len();
            body[at] = byte;
            if let Ok(Some(whole)) = read(&body, 1000) {
                prop_assert_eq!(&whole[..], &plain[..]);
            }
        }
    }
}
