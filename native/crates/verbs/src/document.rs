//! The JSON that comes with a verb.

use std::borrow::Cow;

use kushi_core::{Error, ErrorKind};

use kushi_oip::json::read::{self, Value};
use kushi_oip::json::{Fault, Scanner};

/// A value that has been found well formed.
#[derive(Clone, Copy)]
pub(super) struct Json<'a>(&'a [u8]);

impl<'a> Json<'a> {
    /// The document; where there is none, one that says nothing.
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Error> {
        if body.is_empty() { Ok(Self(b"{}")) } else { Self::required(body) }
    }

    /// The document; that there is none is a fault like any other.
    pub(super) fn required(body: &'a [u8]) -> Result<Self, Error> {
        let mut root = 0..0;
        let scanned = Scanner::new(body).document(|scanner| {
            root = scanner.skip()?;
            Ok(())
        });
        match scanned {
            Ok(()) => Ok(Self(&body[root])),
            Err(fault @ Fault::TooDeep(_)) => Err(Error::invalid(fault.to_string())),
            Err(fault) => Err(unreadable(fault.to_string())),
        }
    }

    pub(super) fn boolean(self) -> Result<bool, Error> {
        match self.value() {
            Value::Bool(value) => Ok(value),
            _ => Err(unreadable("attempt to access JSON non-boolean as boolean")),
        }
    }

    pub(super) fn unsigned(self) -> Result<u64, Error> {
        let number = match self.value() {
            Value::Number(number) => read::unsigned(number),
            _ => None,
        };
        number.ok_or_else(|| unreadable("attempt to access JSON non-unsigned-integer as unsigned-integer"))
    }

    pub(super) fn text(self) -> Result<Cow<'a, str>, Error> {
        match self.value() {
            Value::String(raw) => Ok(read::text(raw)),
            _ => Err(unreadable("attempt to access JSON non-string as string")),
        }
    }

    pub(super) fn elements(self) -> Result<Vec<Self>, Error> {
        if self.value() != Value::Array {
            return Err(unreadable("attempt to access JSON non-array as array"));
        }
        let mut elements = Vec::new();
        // Well formed: the first pass has been over it.
        let _ = Scanner::new(self.0).array(|scanner| {
            elements.push(Self(&self.0[scanner.skip()?]));
            Ok(())
        });
        Ok(elements)
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

    /// The same, where null is as good as none.
    pub(super) fn given(self, name: &str) -> Option<Self> {
        self.member(name).filter(|member| member.value() != Value::Null)
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
pub(super) fn unreadable(text: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::UnreadableInput, text)
}
