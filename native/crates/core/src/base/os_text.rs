//! Errors of the operating system in its own words.

use std::io;

/// The text of an error without the number that Rust puts behind it.
pub fn os_text(error: &io::Error) -> String {
    let mut text = error.to_string();
    if let Some(number) = error.raw_os_error() {
        let words = text.strip_suffix(&format!(" (os error {number})")).map(str::len);
        text.truncate(words.unwrap_or(text.len()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_left_out_and_nothing_else() {
        assert_eq!(os_text(&io::Error::from_raw_os_error(13)), "Permission denied");
        assert_eq!(os_text(&io::Error::other("odd (os error 13)")), "odd (os error 13)");
        assert_eq!(os_text(&io::ErrorKind::AddrNotAvailable.into()), "address not available");
    }
}
