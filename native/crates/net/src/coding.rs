//! Content codings: what is compressed, and what is to be.
//!
//! Gzip and deflate, the latter in zlib's format. What takes long is worked on aside.

use std::io::{self, Read, Write};

use bytes::Bytes;
use flate2::Compression;
use flate2::bufread::{GzDecoder, ZlibDecoder};
use flate2::write::{GzEncoder, ZlibEncoder};
use kushi_core::Error;

use crate::budget::Reservation;
use crate::net::Net;
use crate::pool::Owner;

/// What is worked on where it arrives: about as long as an inference may take there.
const AT_ONCE_BYTES: usize = 16 << 10;
/// Made between two looks at whether there is room for more.
const STEP_BYTES: u64 = 256 << 10;
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    Gzip,
    Deflate,
}

impl Coding {
    /// Smaller answers fit into one packet anyway.
    pub const LEAST_BYTES: usize = 1 << 10;

    /// As headers have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
        }
    }
}

impl Net {
    /// What was compressed; its first bytes tell in which format. `None`: these are more than `max_bytes`. What is made
    /// of it is reserved as it is made, wherever that is.
    pub async fn decompressed(
        &self,
        body: Bytes,
        max_bytes: usize,
        mut reservation: Reservation,
        owner: Owner,
    ) -> Result<Option<(Bytes, Reservation)>, Error> {
        let at_once = max_bytes.min(AT_ONCE_BYTES);
        if body.len() <= at_once
            && let Some(whole) = decompress(&body, at_once, &mut reservation)?
        {
            return Ok(Some((whole, reservation)));
        }
        let length = body.len();
        let work = move |_: &_| {
            let whole = decompress(&body, max_bytes, &mut reservation)?;
            Ok(whole.map(|whole| (whole, reservation)))
        };
        self.pool.run(owner, length, work).await?
    }

    pub async fn compressed(
        &self,
        pieces: Vec<Bytes>,
        coding: Coding,
        level: u32,
        owner: Owner,
    ) -> io::Result<Bytes> {
        let length: usize = pieces.iter().map(Bytes::len).sum();
        if length <= AT_ONCE_BYTES {
            return compress(&pieces, coding, level);
        }
        let work = self.pool.run(owner, length, move |_| compress(&pieces, coding, level));
        work.await.unwrap_or_else(|error| Err(io::Error::other(error)))
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

fn compress(pieces: &[Bytes], coding: Coding, level: u32) -> io::Result<Bytes> {
    let room = pieces.iter().map(Bytes::len).sum::<usize>() / 2;
    let (out, level) = (Vec::with_capacity(room), Compression::new(level));
    let whole = match coding {
        Coding::Gzip => written(GzEncoder::new(out, level), pieces)?.finish()?,
        Coding::Deflate => written(ZlibEncoder::new(out, level), pieces)?.finish()?,
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

    use kushi_core::ErrorKind;
    use proptest::prelude::*;

    use super::*;
    use crate::Budget;

    const LEVEL: u32 = 2;

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
            let body = compress(&pieces(&[&plain[..7], b"", &plain[7..]]), coding, LEVEL).unwrap();
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
            let bomb = compress(&pieces(&[&vec![0; size]]), Coding::Gzip, LEVEL).unwrap();
            let (mut other, mut reservation) = (budget.open(), budget.open());
            other.cover(others).unwrap();
            let error = decompress(&bomb, usize::MAX >> 1, &mut reservation).unwrap_err();
            assert_eq!(error.kind, kind);
            drop((other, reservation));
            assert_eq!(budget.held(), 0);
        }
        let fits = compress(&pieces(&[&vec![0; 700_000]]), Coding::Deflate, LEVEL).unwrap();
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
            let body = compress(&pieces(&[b"hello, hello, hello"]), coding, LEVEL).unwrap();
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
            let mut body = compress(&pieces(&[plain]), coding, LEVEL).unwrap().to_vec();
            let at = at % body.len();
            body[at] = byte;
            if let Ok(Some(whole)) = read(&body, 1000) {
                prop_assert_eq!(&whole[..], &plain[..]);
            }
        }
    }
}
