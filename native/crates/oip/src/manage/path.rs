//! Which resource a path names: the paths of Triton's HTTP protocol.

use std::borrow::Cow;

use kushi_dataplane::Action;
use percent_encoding::percent_decode_str;

use crate::manage::route::{Memory, ModelRoute, RegionAction, Route, Settings};

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
    percent_decode_str(name).decode_utf8_lossy()
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
    fn settings_have_no_other_paths() {
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
}
