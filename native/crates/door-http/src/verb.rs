//! What a route asks of the data plane, and the answer over HTTP.

use kushi_core::Error;
use kushi_dataplane::{AskedVersion, LogChange, Memory, TraceChange, Verb, VerbAnswer};
use kushi_verbs as verbs;

use crate::answer::{self, HttpAnswer};
use crate::health::HealthQuestion;
use crate::route::{About, Control, Management, RegionAction, Settings};

/// The verb, or what is wrong with what was sent.
pub(crate) fn verb(route: Management<'_>, body: &[u8]) -> Result<Verb, Error> {
    Ok(match route {
        Management::Server => Verb::ServerMetadata,
        Management::Live => Verb::ServerLive,
        Management::Ready => Verb::ServerReady,
        Management::AllStatistics => {
            Verb::ModelStatistics { model: String::new(), version: AskedVersion::Any }
        }
        Management::Metrics => Verb::Metrics,
        Management::Model { model, version, about } => {
            let (model, version) = (model.into_owned(), AskedVersion::read(version)?);
            match about {
                About::Metadata => Verb::ModelMetadata { model, version },
                About::Ready => Verb::ModelReady { model, version },
                About::Config => Verb::ModelConfig { model, version },
                About::Statistics => Verb::ModelStatistics { model, version },
            }
        }
        Management::Index { repository: true } | Management::Control { repository: true, .. } => {
            return Err(verbs::repository_named());
        }
        Management::Index { .. } => Verb::RepositoryIndex { ready_only: verbs::ready_only(body)? },
        Management::Control { model, action: Control::Load, .. } => {
            Verb::RepositoryModelLoad { model: model.into_owned(), overrides: verbs::overrides(body)? }
        }
        Management::Control { model, .. } => Verb::RepositoryModelUnload {
            model: model.into_owned(),
            dependents: verbs::unload_dependents(body)?,
        },
        Management::Regions { memory, region, action } => {
            let region = region.into_owned();
            match (action, memory) {
                (RegionAction::Status, _) => Verb::SharedMemoryStatus { memory, region },
                (RegionAction::Register, Memory::System) => {
                    Verb::SystemSharedMemoryRegister { region, place: verbs::region_place(body) }
                }
                (RegionAction::Register, Memory::Cuda) => {
                    Verb::CudaSharedMemoryRegister { region, place: verbs::cuda_place(body) }
                }
                (RegionAction::Unregister, _) => Verb::SharedMemoryUnregister { memory, region },
            }
        }
        Management::Settings { of: Settings::Log, change } => {
            let change = if change { verbs::log_change(body)? } else { LogChange::default() };
            Verb::LogSettings(change)
        }
        Management::Settings { of: Settings::Trace(model), change } => {
            let change = if change { verbs::trace_change(body) } else { Ok(TraceChange::default()) };
            Verb::TraceSetting { model: model.into_owned(), change }
        }
    })
}

/// `asked`: whose health the route asks for.
pub(crate) fn answer(answered: Result<VerbAnswer, Error>, asked: Option<&HealthQuestion>) -> HttpAnswer {
    match (answered, asked) {
        (Ok(VerbAnswer::Health(well)), Some(asked)) => {
            answer::json(if well { 200 } else { 400 }, asked.body(well))
        }
        (answered, _) => plain(answered),
    }
}

fn plain(answered: Result<VerbAnswer, Error>) -> HttpAnswer {
    match answered {
        Ok(VerbAnswer::Done) => answer::empty(200),
        Ok(VerbAnswer::Metrics(text)) => answer::text(text),
        Ok(answered) => answer::json(200, verbs::render(&answered)),
        Err(error) => answer::error(&error),
    }
}

#[cfg(test)]
mod tests {
    use kushi_core::ErrorKind;
    use kushi_dataplane::{Change, Overrides, RegionPlace};

    use super::*;
    use crate::path;
    use crate::route::Route;

    fn asks(method: &str, path: &str, body: &str) -> Result<Verb, Error> {
        match path::find(method, path, |_| true, |_| Ok(())) {
            Ok(Route::Management(route)) => verb(route, body.as_bytes()),
            other => panic!("{path} leads elsewhere: {other:?}"),
        }
    }

    #[test]
    fn a_question_is_in_the_path() {
        let name = || "a b".to_owned();
        let system =
            |region: &str| Verb::SharedMemoryStatus { memory: Memory::System, region: region.into() };
        for (path, expected) in [
            ("/v2", Verb::ServerMetadata),
            ("/v2/health/live", Verb::ServerLive),
            ("/v2/health/ready", Verb::ServerReady),
            ("/metrics", Verb::Metrics),
            ("/v2/models/stats", Verb::ModelStatistics { model: String::new(), version: AskedVersion::Any }),
            ("/v2/models/a%20b", Verb::ModelMetadata { model: name(), version: AskedVersion::Any }),
            ("/v2/models/a%20b/ready", Verb::ModelReady { model: name(), version: AskedVersion::Any }),
            (
                "/v2/models/a%20b/versions/03/config",
                Verb::ModelConfig { model: name(), version: Some(3).into() },
            ),
            (
                "/v2/models/a%20b/versions/3/stats",
                Verb::ModelStatistics { model: name(), version: Some(3).into() },
            ),
            ("/v2/systemsharedmemory/status", system("")),
            ("/v2/systemsharedmemory/region/r/status", system("r")),
            ("/v2/logging", Verb::LogSettings(LogChange::default())),
            (
                "/v2/models/a%20b/trace/setting",
                Verb::TraceSetting { model: name(), change: Ok(TraceChange::default()) },
            ),
        ] {
            assert_eq!(asks("GET", path, "not looked at"), Ok(expected), "{path}");
        }
        let beyond = asks("GET", "/v2/models/m/versions/99999999999999999999/ready", "");
        assert_eq!(beyond.map_err(|error| error.kind), Err(ErrorKind::InvalidInput));
    }

    #[test]
    fn a_change_is_in_the_path_and_the_body() {
        let name = || "m".to_owned();
        let (memory, region) = (Memory::Cuda, String::new());
        let place = RegionPlace { key: "/k".into(), offset: 0, byte_size: 8 };
        let no_handle = Error::invalid("Shared memory register request has no 'raw_handle' field");
        let log = LogChange { info: Some(false), ..LogChange::default() };
        let overrides = Overrides { config: Some("{}".into()), ..Overrides::default() };
        let traces = TraceChange { rate: Change::Reset, ..TraceChange::default() };
        for (path, body, expected) in [
            ("/v2/repository/index", "", Verb::RepositoryIndex { ready_only: false }),
            ("/v2/repository/index", r#"{"ready":true}"#, Verb::RepositoryIndex { ready_only: true }),
            (
                "/v2/repository/models/m/load",
                r#"{"parameters":{"config":"{}"}}"#,
                Verb::RepositoryModelLoad { model: name(), overrides },
            ),
            (
                "/v2/repository/models/m/unload",
                "{}",
                Verb::RepositoryModelUnload { model: name(), dependents: false },
            ),
            (
                "/v2/systemsharedmemory/region/m/register",
                r#"{"key":"/k","byte_size":8}"#,
                Verb::SystemSharedMemoryRegister { region: name(), place: Ok(place) },
            ),
            (
                "/v2/cudasharedmemory/region/m/register",
                "",
                Verb::CudaSharedMemoryRegister { region: name(), place: Err(no_handle) },
            ),
            ("/v2/cudasharedmemory/unregister", "", Verb::SharedMemoryUnregister { memory, region }),
            ("/v2/logging", r#"{"log_info":false}"#, Verb::LogSettings(log)),
            (
                "/v2/models/m/trace/setting",
                r#"{"trace_rate":null}"#,
                Verb::TraceSetting { model: name(), change: Ok(traces) },
            ),
        ] {
            assert_eq!(asks("POST", path, body), Ok(expected), "{path}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_told_in_the_order_of_triton() {
        for path in
            ["/v2/repository/r/index", "/v2/repository/r/models/m/load", "/v2/repository/r/models/m/unload"]
        {
            let kind = asks("POST", path, "?").map_err(|error| error.kind);
            assert_eq!(kind, Err(ErrorKind::Unsupported), "{path}");
        }
        for path in ["/v2/repository/index", "/v2/repository/models/m/load", "/v2/logging"] {
            let kind = asks("POST", path, "?").map_err(|error| error.kind);
            assert_eq!(kind, Err(ErrorKind::UnreadableInput), "{path}");
        }
        // The data plane looks at what is named first.
        let traces = asks("POST", "/v2/models/m/trace/setting", "");
        assert!(matches!(traces, Ok(Verb::TraceSetting { change: Err(_), .. })), "{traces:?}");
        let region = asks("POST", "/v2/systemsharedmemory/register", "");
        assert!(matches!(region, Ok(Verb::SystemSharedMemoryRegister { place: Err(_), .. })), "{region:?}");
    }

    #[test]
    fn a_status_says_whether_all_is_well() {
        let seen = |answered| {
            let answer = answer(answered, Some(&HealthQuestion::Model("a \"m\"".into())));
            let header =
                |name: &str| answer.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
            (answer.status().as_u16(), answer.body().left(), header("content-type"), header("kushi-error"))
        };
        assert_eq!(seen(Ok(VerbAnswer::Done)), (200, 0, None, None));
        let plain = Some("text/plain; charset=utf-8".to_owned());
        assert_eq!(seen(Ok(VerbAnswer::Metrics("a 1\n".into()))), (200, 4, plain, None));
        let json = Some("application/json".to_owned());
        assert_eq!(seen(Ok(VerbAnswer::Health(true))), (200, 31, json.clone(), None));
        assert_eq!(seen(Ok(VerbAnswer::Health(false))), (400, 32, json.clone(), None));
        assert_eq!(seen(Ok(VerbAnswer::Index(vec![]))), (200, 2, json.clone(), None));
        let busy = Error::new(ErrorKind::ModelBusy, "busy");
        assert_eq!(seen(Err(busy)), (500, 16, json, Some("model_not_ready".into())));
    }
}
