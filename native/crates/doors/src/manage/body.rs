//! The JSON that comes with a management request.

use kushi_core::{Error, ErrorKind};

use crate::json::read::{self, Value};
use crate::json::{Fault, Scanner};

/// A value that has been found well formed.
#[derive(Clone, Copy)]
pub(super) struct Json<'a>(&'a [u8]);

impl<'a> Json<'a> {
    /// The document, or nothing where the body is empty.
    pub(super) fn parse(body: &'a [u8]) -> Result<Option<Self>, Error> {
        if body.is_empty() {
            return Ok(None);
        }
        let mut root = 0..0;
        let scanned = Scanner::new(body).document(|scanner| {
            root = scanner.skip()?;
            Ok(())
        });
        match scanned {
            Ok(()) => Ok(Some(Self(&body[root]))),
            Err(fault @ Fault::TooDeep(_)) => Err(Error::invalid(fault.to_string())),
            Err(fault) => Err(unreadable(fault.to_string())),
        }
    }

    pub(super) fn value(self) -> Value<'a> {
        read::value(self.0)
    }

    /// The first member of that name, if this is an object that has one.
    pub(super) fn member(self, name: &str) -> Option<Self> {
        let mut found = None;
        self.each(|key, value| {
            if key == name && found.is_none() {
                found = Some(value);
            }
        });
        found
    }

    /// Walks the members; nothing but an object has any.
    pub(super) fn each(self, mut member: impl FnMut(&str, Self)) {
        if self.value() != Value::Object {
            return;
        }
        // Well formed: the first pass has been over it.
        let _ = Scanner::new(self.0).object(|scanner, key| {
            let span = scanner.skip()?;
            member(&key.to_text(), Self(&self.0[span]));
            Ok(())
        });
    }
}

/// What cannot be read at all.
pub(super) fn unreadable(text: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::UnreadableInput, text)
}
