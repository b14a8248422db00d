//! Which route a request has: the paths of Triton's HTTP protocol.

use std::borrow::Cow;

use kushi_core::{AskedVersion, Error};
use kushi_dataplane::Memory;
use kushi_oip::Category;
use percent_encoding::percent_decode_str;

use crate::route::{
    About, Control, InferenceRoute, Management, NoRoute, RegionAction, Route, Settings, TextRoute,
};

/// The route of a request, unless it has none, or `admit` refuses its category, whatever the method. `has_labels`: whether
/// a version of this model may be named by something else than its number.
pub(crate) fn find<'a>(
    method: &str,
    path: &'a str,
    has_labels: impl FnOnce(&str) -> bool,
    admit: impl FnOnce(Category) -> Result<(), Error>,
) -> Result<Route<'a>, NoRoute> {
    let exists = |route: &Route<'_>| route.labelled().is_none_or(has_labels);
    let mut route = resource(path).filter(exists).ok_or(NoRoute::NotFound)?;
    admit(route.category()).map_err(NoRoute::Refused)?;
    if !route.takes(method) {
        return Err(NoRoute::WrongMethod(route.methods()));
    }
    if let Route::Management(Management::Settings { change, .. }) = &mut route {
        *change = method == "POST";
    }
    Ok(route)
}

pub(crate) fn resource(path: &str) -> Option<Route<'_>> {
    if let Some(rest) = path.strip_prefix("/v2/models/")
        && rest != "stats"
    {
        return model(rest);
    }
    texts(path)
        .map(Route::Texts)
        .or_else(|| listing(path))
        .or_else(|| management(path).map(Route::Management))
}

fn listing(path: &str) -> Option<Route<'_>> {
    match path.strip_prefix("/v1/models")? {
        "" => Some(Route::Listing(None)),
        rest => rest
            .strip_prefix('/')
            .filter(|name| !name.is_empty())
            .map(|name| Route::Listing(Some(decode(name)))),
    }
}

/// As those call them who made them up: OpenAI, text-embeddings-inference, Cohere and Jina, vLLM.
fn texts(path: &str) -> Option<TextRoute> {
    Some(match path {
        "/v1/chat/completions" => TextRoute::ChatCompletions,
        "/v1/completions" => TextRoute::Completions,
        "/v1/embeddings" => TextRoute::Embeddings,
        "/embed" => TextRoute::Embed,
        "/rerank" | "/v1/rerank" | "/v2/rerank" => TextRoute::Rerank,
        "/classify" | "/predict" => TextRoute::Classify,
        "/tokenize" => TextRoute::Tokenize,
        _ => return None,
    })
}

fn management(path: &str) -> Option<Management<'_>> {
    if path == "/metrics" {
        return Some(Management::Metrics);
    }
    let rest = path.strip_prefix("/v2")?;
    match rest {
        "" => return Some(Management::Server),
        "/health/live" => return Some(Management::Live),
        "/health/ready" => return Some(Management::Ready),
        "/models/stats" => return Some(Management::AllStatistics),
        "/logging" => return Some(Management::Settings { of: Settings::Log, change: false }),
        "/trace/setting" => return Some(traces(Cow::Borrowed(""))),
        _ => {}
    }
    let (place, rest) = rest.strip_prefix('/')?.split_once('/')?;
    match place {
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
    let mut version = "";
    if next == Some("versions") {
        version = segments.next().filter(|text| is_number(text) || AskedVersion::is_label(text))?;
        next = segments.next();
    }
    if next == Some("trace") && version.is_empty() {
        let whole = segments.next() == Some("setting") && segments.next().is_none();
        return whole.then(|| Route::Management(traces(decode(name))));
    }
    if segments.next().is_some() {
        return None;
    }
    let model = decode(name);
    let inference = |model, kind| Route::Inference { model, version, kind };
    let about = |model, about| Route::Management(Management::Model { model, version, about });
    Some(match next {
        None => about(model, About::Metadata),
        Some("ready") => about(model, About::Ready),
        Some("config") => about(model, About::Config),
        Some("stats") => about(model, About::Statistics),
        Some("infer") => inference(model, InferenceRoute::Infer),
        Some("generate") => inference(model, InferenceRoute::Generate),
        Some("generate_stream") => inference(model, InferenceRoute::GenerateStream),
        Some(_) => return None,
    })
}

fn traces(model: Cow<'_, str>) -> Management<'_> {
    Management::Settings { of: Settings::Trace(model), change: false }
}

fn repository(rest: &str) -> Option<Management<'_>> {
    let segments: Vec<&str> = rest.split('/').collect();
    if segments.contains(&"") {
        return None;
    }
    let (name, action) = match segments[..] {
        ["index"] => return Some(Management::Index { repository: false }),
        [_, "index"] => return Some(Management::Index { repository: true }),
        ["models", name, action] | [_, "models", name, action] => (name, action),
        _ => return None,
    };
    let action = match action {
        "load" => Control::Load,
        "unload" => Control::Unload,
        _ => return None,
    };
    Some(Management::Control { repository: segments.len() == 4, model: decode(name), action })
}

fn regions(memory: Memory, rest: &str) -> Option<Management<'_>> {
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
    Some(Management::Regions { memory, region: decode(region), action })
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
        let infer = |model: &'static str, version| {
            Some(Route::Inference { model: Cow::Borrowed(model), version, kind: InferenceRoute::Infer })
        };
        let (model, version) = (Cow::Borrowed("m"), "");
        let metadata = Management::Model { model, version, about: About::Metadata };
        assert_eq!(resource("/v2"), Some(Route::Management(Management::Server)));
        assert_eq!(resource("/v2/models/stats"), Some(Route::Management(Management::AllStatistics)));
        assert_eq!(resource("/v2/models/m"), Some(Route::Management(metadata)));
        assert_eq!(resource("/v2/models/a%20b/infer"), infer("a b", ""));
        assert_eq!(resource("/v2/models/m/versions/03/infer"), infer("m", "03"));
        assert_eq!(resource("/v2/models/m/versions/a.b-c_1/infer"), infer("m", "a.b-c_1"));
        let path = "/v2/models/m/versions/stable/infer";
        for (has_labels, expected) in
            [(false, Err(NoRoute::NotFound)), (true, Ok(infer("m", "stable").unwrap()))]
        {
            assert_eq!(super::find("POST", path, |model| has_labels && model == "m", |_| Ok(())), expected);
        }
        assert_eq!(resource("/v1/models/a%2Fb"), Some(Route::Listing(Some("a/b".into()))));
        for path in [
            "/",
            "/v2/",
            "/v1",
            "/v1/",
            "/v1/models/",
            "/v1/modelsx",
            "/v1/embeddings/",
            "/rerank/x",
            "/v2/models/",
            "/v2/models/m/",
            "/v2/models/m/versions/1x",
            "/v2/models/m/versions/x y",
            "/v2/models/m/infer/x",
        ] {
            assert_eq!(resource(path), None, "{path}");
        }
    }

    #[test]
    fn finds_the_repository_with_and_without_its_name() {
        let index = |repository| Some(Route::Management(Management::Index { repository }));
        let control = |repository, model: &'static str, action| {
            let model = Cow::Borrowed(model);
            Some(Route::Management(Management::Control { repository, model, action }))
        };
        assert_eq!(resource("/v2/repository/index"), index(false));
        assert_eq!(resource("/v2/repository/models/index"), index(true));
        assert_eq!(resource("/v2/repository/models/m/load"), control(false, "m", Control::Load));
        assert_eq!(resource("/v2/repository/r/models/a%20b/unload"), control(true, "a b", Control::Unload));
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
            let region = Cow::Borrowed(region);
            Some(Route::Management(Management::Regions { memory, region, action }))
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

    fn find<'a>(method: &str, path: &'a str) -> Result<Route<'a>, NoRoute> {
        super::find(method, path, |_| true, |_| Ok(()))
    }

    #[test]
    fn finds_settings_to_read_and_to_change() {
        let found = |method, path, of| {
            let route = Management::Settings { of, change: method == "POST" };
            assert_eq!(find(method, path), Ok(Route::Management(route)), "{method} {path}");
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
            assert_eq!(find(method, path), Err(NoRoute::WrongMethod(allowed)), "{path}");
        }
        assert_eq!(find("GET", "/v3"), Err(NoRoute::NotFound));
    }
}
