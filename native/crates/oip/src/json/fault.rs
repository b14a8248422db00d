//! What a document is refused for, in the words of RapidJSON.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syntax {
    Empty,
    RootNotSingular,
    ValueInvalid,
    MissName,
    MissColon,
    MissCommaOrBrace,
    MissCommaOrBracket,
    BadHex,
    BadSurrogate,
    BadEscape,
    MissQuotation,
    BadEncoding,
    NumberTooBig,
    MissFraction,
    MissExponent,
}

impl Syntax {
    fn text(self) -> &'static str {
        match self {
            Self::Empty => "The document is empty.",
            Self::RootNotSingular => "The document root must not be followed by other values.",
            Self::ValueInvalid => "Invalid value.",
            Self::MissName => "Missing a name for object member.",
            Self::MissColon => "Missing a colon after a name of object member.",
            Self::MissCommaOrBrace => "Missing a comma or '}' after an object member.",
            Self::MissCommaOrBracket => "Missing a comma or ']' after an array element.",
            Self::BadHex => "Incorrect hex digit after \\u escape in string.",
            Self::BadSurrogate => "The surrogate pair in string is invalid.",
            Self::BadEscape => "Invalid escape character in string.",
            Self::MissQuotation => "Missing a closing quotation mark in string.",
            Self::BadEncoding => "Invalid encoding in string.",
            Self::NumberTooBig => "Number too big to be stored in double.",
            Self::MissFraction => "Miss fraction part in number.",
            Self::MissExponent => "Miss exponent in number.",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Syntax {
        what: Syntax,
        offset: usize,
    },
    /// The limit is beside it.
    TooDeep(u32),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax { what, offset } => {
                write!(f, "failed to parse the request JSON buffer: {} at {offset}", what.text())
            }
            Self::TooDeep(limit) => write!(f, "JSON nesting depth exceeds maximum allowed limit ({limit})"),
        }
    }
}

impl Fault {
    /// The fault alone, in our own voice.
    pub fn what(self) -> String {
        match self {
            Self::Syntax { what, offset } => {
                format!("{} at byte {offset}", what.text().trim_end_matches('.').to_lowercase())
            }
            Self::TooDeep(_) => "nested too deeply".to_owned(),
        }
    }
}
