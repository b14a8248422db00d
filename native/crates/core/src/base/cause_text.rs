//! Why something failed, of errors that leave it to their source.

use std::error::Error;

/// The text of the innermost error: what `libloading` says itself names no reason.
pub fn cause_text(error: &(dyn Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

#[cfg(test)]
mod tests {
    use std::{fmt, io};

    use super::*;

    #[derive(Debug)]
    struct Outer(Option<Box<dyn Error>>);

    impl fmt::Display for Outer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("it failed")
        }
    }

    impl Error for Outer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.0.as_deref()
        }
    }

    #[test]
    fn the_innermost_error_says_why() {
        let reason = io::Error::other("file too short");
        assert_eq!(cause_text(&Outer(Some(Box::new(Outer(Some(reason.into())))))), "file too short");
        assert_eq!(cause_text(&Outer(None)), "it failed");
    }
}
