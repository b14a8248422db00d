//! Which resource a path names, and the method that it takes.

use std::borrow::Cow;

use kushi_core::Error;

use crate::manage::reply::Reply;
use crate::orders::Action;

/// The version as the path has it: digits.
pub(crate) type VersionText<'a> = Option<&'a str>;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Route<'a> {
    Server,
    Live,
    Ready,
    AllStatistics,
    /// The text that the metrics door has.
    Metrics,
    Model {
        name: Cow<'a, str>,
        version: VersionText<'a>,
        what: ModelRoute,
    },
    /// `repository`: whether the path names one.
    Index {
        repository: bool,
    },
    Control {
        repository: bool,
        name: Cow<'a, str>,
        action: Action,
    },
    /// `region`: empty for all.
    Regions {
        memory: Memory,
        region: Cow<'a, str>,
        action: RegionAction,
    },
    Settings {
        of: Settings<'a>,
        /// Whether the request brings new ones.
        change: bool,
    },
}

/// What can be set while the server runs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Settings<'a> {
    Log,
    /// Of this model; empty for all.
    Trace(Cow<'a, str>),
}

/// What kind of shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    System,
    Cuda,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RegionAction {
    Status,
    Register,
    Unregister,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ModelRoute {
    Metadata,
    Ready,
    Config,
    Statistics,
    Infer,
    Generate,
    GenerateStream,
}

impl ModelRoute {
    /// Whether it asks the model itself.
    pub(super) fn is_inference(self) -> bool {
        matches!(self, Self::Infer | Self::Generate | Self::GenerateStream)
    }
}

/// What a token can be asked for, all routes of it together; the names are Triton's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Category {
    Health,
    Metadata,
    Inference,
    SharedMemory,
    ModelConfig,
    ModelRepository,
    Statistics,
    Trace,
    Logging,
}

impl Category {
    pub(crate) const ALL: [Self; 9] = [
        Self::Health,
        Self::Metadata,
        Self::Inference,
        Self::SharedMemory,
        Self::ModelConfig,
        Self::ModelRepository,
        Self::Statistics,
        Self::Trace,
        Self::Logging,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Health => "health",
            Self::Metadata => "metadata",
            Self::Inference => "inference",
            Self::SharedMemory => "shared-memory",
            Self::ModelConfig => "model-config",
            Self::ModelRepository => "model-repository",
            Self::Statistics => "statistics",
            Self::Trace => "trace",
            Self::Logging => "logging",
        }
    }
}

impl Route<'_> {
    pub(crate) fn category(&self) -> Category {
        match self {
            Self::Server => Category::Metadata,
            Self::Live | Self::Ready => Category::Health,
            // They tell of every model what its statistics tell.
            Self::AllStatistics | Self::Metrics => Category::Statistics,
            Self::Model { what, .. } => match what {
                ModelRoute::Metadata => Category::Metadata,
                ModelRoute::Ready => Category::Health,
                ModelRoute::Config => Category::ModelConfig,
                ModelRoute::Statistics => Category::Statistics,
                ModelRoute::Infer | ModelRoute::Generate | ModelRoute::GenerateStream => Category::Inference,
            },
            Self::Index { .. } | Self::Control { .. } => Category::ModelRepository,
            Self::Regions { .. } => Category::SharedMemory,
            Self::Settings { of: Settings::Log, .. } => Category::Logging,
            Self::Settings { of: Settings::Trace(_), .. } => Category::Trace,
        }
    }

    /// The methods that the path takes.
    pub(super) fn methods(&self) -> &'static str {
        match self {
            Self::Settings { .. } => "GET, POST",
            Self::Regions { action: RegionAction::Status, .. } => "GET",
            Self::Model { what, .. } if what.is_inference() => "POST",
            Self::Index { .. } | Self::Control { .. } | Self::Regions { .. } => "POST",
            _ => "GET",
        }
    }

    /// What has to be answered however busy the server is.
    pub(crate) fn tells_of_health(&self) -> bool {
        matches!(self, Self::Live | Self::Ready | Self::Metrics)
    }

    /// Whether the body of the request says something.
    pub(crate) fn takes_body(&self) -> bool {
        match self {
            Self::Settings { change, .. } => *change,
            route => route.methods() == "POST",
        }
    }
}

/// The resource, or the refusal of a path or a method that does not exist.
pub(crate) fn find<'a>(method: &str, path: &'a str) -> Result<Route<'a>, Reply> {
    find_admitted(method, path, |_| Ok(()))
}

/// The same where `admit` may refuse a category of routes, whatever the method.
pub(crate) fn find_admitted<'a>(
    method: &str,
    path: &'a str,
    admit: impl FnOnce(Category) -> Result<(), Error>,
) -> Result<Route<'a>, Reply> {
    let mut route = resource(path).ok_or_else(Reply::not_found)?;
    admit(route.category()).map_err(|refusal| Reply::error(&refusal))?;
    if !route.methods().split(", ").any(|allowed| allowed == method) {
        return Err(Reply::wrong_method(route.methods()));
    }
    if let Route::Settings { change, .. } = &mut route {
        *change = method == "POST";
    }
    Ok(route)
}

pub(super) fn resource(path: &str) -> Option<Route<'_>> {
    if path == "/metrics" {
        return Some(Route::Metrics);
    }
    let rest = path.strip_prefix("/v2")?;
    match rest {
        "" => return Some(Route::Server),
        "/health/live" => return Some(Route::Live),
        "/health/ready" => return Some(Route::Ready),
        "/models/stats" => return Some(Route::AllStatistics),
        "/logging" => return Some(Route::Settings { of: Settings::Log, change: false }),
        "/trace/setting" => return Some(traces(Cow::Borrowed(""))),
        _ => {}
    }
    let (place, rest) = rest.strip_prefix('/')?.split_once('/')?;
    match place {
        "models" => model(rest),
        "repository" => repository(rest),
        "systemsharedmemory" => regions(Memory::System, rest),
        "cudasharedmemory" => regions(Memory::Cuda, rest),
        _ => None,
    }
}

fn model(rest: &str) -> Option<Route<'_>> {
    let mut segments = rest.split('/');
    let name = segments.next().filter(|name| !name.is_empty())?;
    let mut next = segments.next();
    let mut version = None;
    if next == Some("versions") {
        version = Some(segments.next().filter(|text| is_number(text))?);
        next = segments.next();
    }
    if next == Some("trace") && version.is_none() {
        let whole = segments.next() == Some("setting") && segments.next().is_none();
        return whole.then(|| traces(decode(name)));
    }
    let what = match next {
        None => ModelRoute::Metadata,
        Some("ready") => ModelRoute::Ready,
        Some("config") => ModelRoute::Config,
        Some("stats") => ModelRoute::Statistics,
        Some("infer") => ModelRoute::Infer,
        Some("generate") => ModelRoute::Generate,
        Some("generate_stream") => ModelRoute::GenerateStream,
        Some(_) => return None,
    };
    if segments.next().is_some() {
        return None;
    }
    Some(Route::Model { name: decode(name), version, what })
}

fn traces(model: Cow<'_, str>) -> Route<'_> {
    Route::Settings { of: Settings::Trace(model), change: false }
}

fn repository(rest: &str) -> Option<Route<'_>> {
    let segments: Vec<&str> = rest.split('/').collect();
    if segments.contains(&"") {
        return None;
    }
    let (name, action) = match segments[..] {
        ["index"] => return Some(Route::Index { repository: false }),
        [_, "index"] => return Some(Route::Index { repository: true }),
        ["models", name, action] | [_, "models", name, action] => (name, action),
        _ => return None,
    };
    let action = match action {
        "load" => Action::Load,
        "unload" => Action::Unload,
        _ => return None,
    };
    Some(Route::Control { repository: segments.len() == 4, name: decode(name), action })
}

fn regions(memory: Memory, rest: &str) -> Option<Route<'_>> {
    let (region, action) = match rest.strip_prefix("region/") {
        Some(rest) => rest.split_once('/').filter(|(region, _)| !region.is_empty())?,
        None => ("", rest),
    };
    let action = match action {
        "status" => RegionAction::Status,
        "register" => RegionAction::Register,
        "unregister" => RegionAction::Unregister,
        _ => return None,
    };
    Some(Route::Regions { memory, region: decode(region), action })
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Undoes percent-encoding, which clients apply to names.
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
        assert_eq!(resource("/v2"), Some(Route::Server));
        assert_eq!(resource("/v2/models/stats"), Some(Route::AllStatistics));
        assert_eq!(resource("/v2/models/m"), model("m", None, ModelRoute::Metadata));
        assert_eq!(resource("/v2/models/a%20b/infer"), model("a b", None, ModelRoute::Infer));
        assert_eq!(resource("/v2/models/m/versions/03/infer"), model("m", Some("03"), ModelRoute::Infer));
        for path in [
            "/",
            "/v2/",
            "/v1",
            "/v2/models/",
            "/v2/models/m/",
            "/v2/models/m/versions/x",
            "/v2/models/m/infer/x",
        ] {
            assert_eq!(resource(path), None, "{path}");
        }
    }

    #[test]
    fn finds_the_repository_with_and_without_its_name() {
        let control = |repository, name: &'static str, action| {
            Some(Route::Control { repository, name: Cow::Borrowed(name), action })
        };
        assert_eq!(resource("/v2/repository/index"), Some(Route::Index { repository: false }));
        assert_eq!(resource("/v2/repository/models/index"), Some(Route::Index { repository: true }));
        assert_eq!(resource("/v2/repository/models/m/load"), control(false, "m", Action::Load));
        assert_eq!(resource("/v2/repository/r/models/a%20b/unload"), control(true, "a b", Action::Unload));
        for path in [
            "/v2/repository",
            "/v2/repository/",
            "/v2/repository//index",
            "/v2/repository/index/",
            "/v2/repository/a/b/index",
            "/v2/repository/models/m",
            "/v2/repository/models/m/reload",
            "/v2/repository/models//load",
            "/v2/repository/r/model/m/load",
        ] {
            assert_eq!(resource(path), None, "{path}");
        }
    }

    #[test]
    fn finds_one_region_or_all_of_them() {
        let regions = |memory, region: &'static str, action| {
            Some(Route::Regions { memory, region: Cow::Borrowed(region), action })
        };
        let (system, cuda) = (Memory::System, Memory::Cuda);
        for (path, route) in [
            ("/v2/systemsharedmemory/status", regions(system, "", RegionAction::Status)),
            ("/v2/systemsharedmemory/register", regions(system, "", RegionAction::Register)),
            ("/v2/systemsharedmemory/region/a%2Fb/register", regions(system, "a/b", RegionAction::Register)),
            (
                "/v2/systemsharedmemory/region/status/unregister",
                regions(system, "status", RegionAction::Unregister),
            ),
            ("/v2/cudasharedmemory/region/../status", regions(cuda, "..", RegionAction::Status)),
            ("/v2/cudasharedmemory/unregister", regions(cuda, "", RegionAction::Unregister)),
        ] {
            assert_eq!(resource(path), route, "{path}");
        }
        for path in [
            "/v2/systemsharedmemory",
            "/v2/systemsharedmemory/",
            "/v2/systemsharedmemory/state",
            "/v2/systemsharedmemory/region/status",
            "/v2/systemsharedmemory/region//status",
            "/v2/systemsharedmemory/region/a/b/status",
            "/v2/systemsharedmemory/regions/a/status",
            "/v2/sharedmemory/status",
        ] {
            assert_eq!(resource(path), None, "{path}");
        }
    }

    #[test]
    fn finds_settings_to_read_and_to_change() {
        let found = |method, path, of| {
            let change = method == "POST";
            assert_eq!(find(method, path).ok(), Some(Route::Settings { of, change }), "{method} {path}");
        };
        for method in ["GET", "POST"] {
            found(method, "/v2/logging", Settings::Log);
            found(method, "/v2/trace/setting", Settings::Trace("".into()));
            found(method, "/v2/models/a%20b/trace/setting", Settings::Trace("a b".into()));
        }
        for path in [
            "/v2/logging/",
            "/v2/trace",
            "/v2/trace/settings",
            "/v2/models/m/trace",
            "/v2/models/m/trace/setting/x",
            "/v2/models/m/versions/1/trace/setting",
        ] {
            assert_eq!(resource(path), None, "{path}");
        }
    }

    #[test]
    fn refuses_another_method_by_naming_the_right_one() {
        for (method, path, allowed) in [
            ("POST", "/v2", "GET"),
            ("GET", "/v2/repository/index", "POST"),
            ("", "/v2/models/m/infer", "POST"),
            ("PUT", "/v2/logging", "GET, POST"),
            ("GET, POST", "/v2/trace/setting", "GET, POST"),
        ] {
            let refusal = find(method, path).err().map(|reply| (reply.status, reply.allow));
            assert_eq!(refusal, Some((405, Some(allowed))), "{path}");
        }
        assert_eq!(find("GET", "/v3").err().map(|reply| reply.status), Some(404));
    }
}
