//! Inputs that lie in regions of shared memory.

use kushi_core::Error;

/// What one request may have read from regions, as much as a body over HTTP may have.
const MOST_BYTES: usize = i32::MAX as usize;

/// Fails where so many inputs in regions are too large together.
pub fn check_region_bytes(byte_sizes: impl Iterator<Item = usize>) -> Result<(), Error> {
    let bytes = byte_sizes.fold(0, usize::saturating_add);
    if bytes <= MOST_BYTES {
        return Ok(());
    }
    let text = format!("request has {bytes} bytes in shared memory, at most {MOST_BYTES} are allowed");
    Err(Error::invalid(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(byte_sizes: &[usize]) -> Result<(), String> {
        check_region_bytes(byte_sizes.iter().copied()).map_err(|error| error.to_string())
    }

    #[test]
    fn inputs_in_regions_are_bounded_together() {
        assert_eq!(checked(&[]), Ok(()));
        assert_eq!(checked(&[MOST_BYTES - 1, 1]), Ok(()));
        let text = "request has 2147483648 bytes in shared memory, at most 2147483647 are allowed";
        assert_eq!(checked(&[MOST_BYTES, 1]), Err(text.to_owned()));
        assert!(checked(&[usize::MAX, 1]).is_err());
    }
}
