//! The header `grpc-timeout`: how long a client waits.

use std::time::Duration;

use crate::status::{INTERNAL, Status};

/// Digits of the number, as gRPC allows.
const MOST_DIGITS: usize = 8;

pub(crate) fn parse(text: &[u8]) -> Result<Duration, Status> {
    read(text).ok_or_else(|| {
        Status::new(INTERNAL, format!("cannot read grpc-timeout '{}'", String::from_utf8_lossy(text)))
    })
}

fn read(text: &[u8]) -> Option<Duration> {
    let (unit, digits) = text.split_last()?;
    if digits.is_empty() || digits.len() > MOST_DIGITS || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some(match unit {
        b'H' => Duration::from_secs(number * 3600),
        b'M' => Duration::from_secs(number * 60),
        b'S' => Duration::from_secs(number),
        b'm' => Duration::from_millis(number),
        b'u' => Duration::from_micros(number),
        b'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_those_of_grpc() {
        for (text, expected) in [
            (&b"2H"[..], Some(Duration::from_secs(7200))),
            (b"1M", Some(Duration::from_secs(60))),
            (b"99999999S", Some(Duration::from_secs(99_999_999))),
            (b"10m", Some(Duration::from_millis(10))),
            (b"10u", Some(Duration::from_micros(10))),
            (b"0n", Some(Duration::ZERO)),
            (b"123456789n", None),
            (b"", None),
            (b"5", None),
            (b"S", None),
            (b"-1S", None),
            (b"+1S", None),
            (b"1s", None),
        ] {
            assert_eq!(read(text), expected, "{}", String::from_utf8_lossy(text));
        }
    }
}
