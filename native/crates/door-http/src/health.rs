//! Whether a server or a model is well: the status says it, and the body once more, as some clients read that one.

use kushi_oip::json::write;

use crate::route::{About, Management};

/// Who is asked about.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HealthQuestion {
    Live,
    Ready,
    Model(String),
}

impl HealthQuestion {
    /// `None`: the route asks for something else.
    pub(crate) fn by(route: &Management<'_>) -> Option<Self> {
        match route {
            Management::Live => Some(Self::Live),
            Management::Ready => Some(Self::Ready),
            Management::Model { model, about: About::Ready, .. } => {
                Some(Self::Model(model.clone().into_owned()))
            }
            _ => None,
        }
    }

    pub(crate) fn body(&self, well: bool) -> Vec<u8> {
        match self {
            Self::Live => format!(r#"{{"live":{well}}}"#).into_bytes(),
            Self::Ready => format!(r#"{{"ready":{well}}}"#).into_bytes(),
            Self::Model(name) => {
                let mut body = b"{\"name\":".to_vec();
                write::string(&mut body, name.as_bytes());
                body.extend_from_slice(format!(",\"ready\":{well}}}").as_bytes());
                body
            }
        }
    }
}
