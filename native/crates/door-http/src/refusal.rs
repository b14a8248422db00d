//! A request that is refused before it has been received.

use hyper::header::{ACCEPT_ENCODING, CONNECTION, HeaderValue};
use kushi_core::{Error, ErrorKind};

use crate::answer::{self, HttpAnswer};

pub(crate) enum Refusal {
    /// What is left of the body is taken in, and the connection goes on.
    Answer(Error),
    /// Where the next request begins is not known, or not worth finding out.
    Final(Error),
    /// The body is compressed, and not in a way that is known here.
    UnknownCoding,
    /// The body did not come.
    TimedOut,
}

impl Refusal {
    /// The client went away or broke the protocol: probably there is nobody to answer.
    pub(crate) fn broken() -> Self {
        Self::Final(Error::invalid("the request body ended early"))
    }

    pub(crate) fn is_final(&self) -> bool {
        !matches!(self, Self::Answer(_) | Self::UnknownCoding)
    }

    pub(crate) fn answer(&self) -> HttpAnswer {
        match self {
            Self::Answer(error) | Self::Final(error) => answer::error(error),
            Self::UnknownCoding => {
                let error = Error::new(ErrorKind::Unsupported, "Unsupported compression type");
                let mut answer = answer::error(&error);
                answer.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip, deflate"));
                answer
            }
            Self::TimedOut => {
                let text = "the request body did not arrive in time (--http-body-timeout-secs, --http-min-body-rate)";
                answer::refusal(408, ErrorKind::DeadlineExceeded, text)
            }
        }
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Answer(error)
    }
}

/// The connection ends behind this answer.
pub(crate) fn last(answer: &mut HttpAnswer) {
    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
}
