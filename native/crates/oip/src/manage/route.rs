//! What a request may ask for: the routes, the methods that each takes, and the category that a token is asked for.

use std::borrow::Cow;

use kushi_core::Error;
use kushi_dataplane::Action;

use crate::manage::path::resource;
use crate::manage::reply::Reply;

/// The version as the path has it: digits.
pub type VersionText<'a> = Option<&'a str>;

#[derive(Debug, PartialEq, Eq)]
pub enum Route<'a> {
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

const GET_AND_POST: &str = "GET, POST";

/// What can be set while the server runs.
#[derive(Debug, PartialEq, Eq)]
pub enum Settings<'a> {
    Log,
    /// Of this model; empty for all.
    Trace(Cow<'a, str>),
}

/// What kind of shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    System,
    Cuda,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionAction {
    Status,
    Register,
    Unregister,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelRoute {
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
pub enum Category {
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
    pub const ALL: [Self; 9] = [
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

    pub fn name(self) -> &'static str {
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
    pub fn category(&self) -> Category {
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
            Self::Settings { .. } => GET_AND_POST,
            Self::Regions { action: RegionAction::Status, .. } => "GET",
            Self::Model { what, .. } if what.is_inference() => "POST",
            Self::Index { .. } | Self::Control { .. } | Self::Regions { .. } => "POST",
            _ => "GET",
        }
    }

    fn takes(&self, method: &str) -> bool {
        match self.methods() {
            GET_AND_POST => matches!(method, "GET" | "POST"),
            only => only == method,
        }
    }

    /// What has to be answered however busy the server is.
    pub fn tells_of_health(&self) -> bool {
        matches!(self, Self::Live | Self::Ready | Self::Metrics)
    }

    /// Whether the body of the request says something.
    pub fn takes_body(&self) -> bool {
        match self {
            Self::Settings { change, .. } => *change,
            route => route.methods() == "POST",
        }
    }
}

/// The resource, or the refusal of a path or a method that does not exist.
pub fn find<'a>(method: &str, path: &'a str) -> Result<Route<'a>, Reply> {
    find_admitted(method, path, |_| Ok(()))
}

/// The same where `admit` may refuse a category of routes, whatever the method.
pub fn find_admitted<'a>(
    method: &str,
    path: &'a str,
    admit: impl FnOnce(Category) -> Result<(), Error>,
) -> Result<Route<'a>, Reply> {
    let mut route = resource(path).ok_or_else(Reply::not_found)?;
    admit(route.category()).map_err(|refusal| Reply::error(&refusal))?;
    if !route.takes(method) {
        return Err(Reply::wrong_method(route.methods()));
    }
    if let Route::Settings { change, .. } = &mut route {
        *change = method == "POST";
    }
    Ok(route)
}

#[cfg(test)]
mod tests {
    use super::*;

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
