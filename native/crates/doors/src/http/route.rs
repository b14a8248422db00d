//! Which resource a path names.

use std::borrow::Cow;

use hyper::Method;

/// The version as the path has it: digits.
pub(crate) type VersionText<'a> = Option<&'a str>;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Route<'a> {
    Server,
    Live,
    Ready,
    AllStatistics,
    Model { name: Cow<'a, str>, version: VersionText<'a>, what: ModelRoute },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ModelRoute {
    Metadata,
    Ready,
    Config,
    Statistics,
    Infer,
}

impl Route<'_> {
    pub(crate) fn method(&self) -> Method {
        match self {
            Self::Model { what: ModelRoute::Infer, .. } => Method::POST,
            _ => Method::GET,
        }
    }
}

pub(crate) fn find(path: &str) -> Option<Route<'_>> {
    let rest = path.strip_prefix("/v2")?;
    match rest {
        "" => return Some(Route::Server),
        "/health/live" => return Some(Route::Live),
        "/health/ready" => return Some(Route::Ready),
        "/models/stats" => return Some(Route::AllStatistics),
        _ => {}
    }
    let mut segments = rest.strip_prefix("/models/")?.split('/');
    let name = segments.next().filter(|name| !name.is_empty())?;
    let mut next = segments.next();
    let mut version = None;
    if next == Some("versions") {
        version = Some(segments.next().filter(|text| is_number(text))?);
        next = segments.next();
    }
    let what = match next {
        None => ModelRoute::Metadata,
        Some("ready") => ModelRoute::Ready,
        Some("config") => ModelRoute::Config,
        Some("stats") => ModelRoute::Statistics,
        Some("infer") => ModelRoute::Infer,
        Some(_) => return None,
    };
    if segments.next().is_some() {
        return None;
    }
    Some(Route::Model { name: decode(name), version, what })
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Undoes percent-encoding, which clients apply to model names.
fn decode(name: &str) -> Cow<'_, str> {
    if !name.contains('%') {
        return Cow::Borrowed(name);
    }
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let hex = |at: usize| after.get(at).and_then(|&digit| char::from(digit).to_digit(16));
        match (byte, hex(0), hex(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high << 4 | low) as u8);
                rest = &after[2..];
            }
            _ => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_models_versions_and_nothing_else() {
        let model = |name: &'static str, version, what| {
            Some(Route::Model { name: Cow::Borrowed(name), version, what })
        };
        assert_eq!(find("/v2"), Some(Route::Server));
        assert_eq!(find("/v2/models/stats"), Some(Route::AllStatistics));
        assert_eq!(find("/v2/models/m"), model("m", None, ModelRoute::Metadata));
        assert_eq!(find("/v2/models/a%20b/infer"), model("a b", None, ModelRoute::Infer));
        assert_eq!(find("/v2/models/m/versions/03/infer"), model("m", Some("03"), ModelRoute::Infer));
        for path in [
            "/",
            "/v2/",
            "/v1",
            "/v2/models/",
            "/v2/models/m/",
            "/v2/models/m/versions/x",
            "/v2/models/m/infer/x",
        ] {
            assert_eq!(find(path), None, "{path}");
        }
    }
}
