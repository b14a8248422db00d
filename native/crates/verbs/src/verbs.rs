//! A verb by its name, with an object of arguments.

use kushi_core::{Error, ErrorKind};
use kushi_dataplane::{AskedVersion, LogChange, Memory, TraceChange, Verb};

use crate::document::Json;
use crate::{repository, settings, shared_memory};

/// What is not among the arguments is empty or false, as in protobuf; no object at all has none.
pub fn verb(name: &str, arguments: &[u8]) -> Result<Verb, Error> {
    let arguments = Json::parse(arguments)?;
    Ok(match name {
        "ServerLive" => Verb::ServerLive,
        "ServerReady" => Verb::ServerReady,
        "ServerMetadata" => Verb::ServerMetadata,
        "ModelReady" => {
            let (model, version) = model(arguments)?;
            Verb::ModelReady { model, version }
        }
        "ModelMetadata" => {
            let (model, version) = model(arguments)?;
            Verb::ModelMetadata { model, version }
        }
        "ModelConfig" => {
            let (model, version) = model(arguments)?;
            Verb::ModelConfig { model, version }
        }
        "ModelStatistics" => {
            let (model, version) = model(arguments)?;
            Verb::ModelStatistics { model, version }
        }
        "RepositoryIndex" => {
            check_repository(arguments)?;
            Verb::RepositoryIndex { ready_only: repository::ready_only_of(arguments)? }
        }
        "RepositoryModelLoad" => {
            check_repository(arguments)?;
            let overrides = repository::overrides_of(arguments)?;
            Verb::RepositoryModelLoad { model: text(arguments, "model_name")?, overrides }
        }
        "RepositoryModelUnload" => {
            check_repository(arguments)?;
            let dependents = repository::unload_dependents_of(arguments)?;
            Verb::RepositoryModelUnload { model: text(arguments, "model_name")?, dependents }
        }
        "SystemSharedMemoryStatus" => status(Memory::System, arguments)?,
        "SystemSharedMemoryRegister" => {
            let place = shared_memory::region_place_of(arguments);
            Verb::SystemSharedMemoryRegister { region: text(arguments, "name")?, place }
        }
        "SystemSharedMemoryUnregister" => unregister(Memory::System, arguments)?,
        "CudaSharedMemoryStatus" => status(Memory::Cuda, arguments)?,
        "CudaSharedMemoryRegister" => {
            let place = shared_memory::cuda_place_of(arguments);
            Verb::CudaSharedMemoryRegister { region: text(arguments, "name")?, place }
        }
        "CudaSharedMemoryUnregister" => unregister(Memory::Cuda, arguments)?,
        "LogSettings" => {
            let change = arguments.given("settings").map(settings::log_change_of).transpose()?;
            Verb::LogSettings(change.unwrap_or(LogChange::default()))
        }
        "TraceSetting" => {
            let change = arguments.given("settings").map(settings::trace_change_of);
            let change = change.unwrap_or(Ok(TraceChange::default()));
            Verb::TraceSetting { model: text(arguments, "model_name")?, change }
        }
        "Metrics" => Verb::Metrics,
        _ => return Err(Error::new(ErrorKind::Unsupported, format!("unknown verb '{name}'"))),
    })
}

fn model(arguments: Json<'_>) -> Result<(String, AskedVersion), Error> {
    let name = text(arguments, "name")?;
    Ok((name, AskedVersion::read(&text(arguments, "version")?)?))
}

fn status(memory: Memory, arguments: Json<'_>) -> Result<Verb, Error> {
    Ok(Verb::SharedMemoryStatus { memory, region: text(arguments, "name")? })
}

fn unregister(memory: Memory, arguments: Json<'_>) -> Result<Verb, Error> {
    Ok(Verb::SharedMemoryUnregister { memory, region: text(arguments, "name")? })
}

fn check_repository(arguments: Json<'_>) -> Result<(), Error> {
    let named = !text(arguments, "repository_name")?.is_empty();
    if named { Err(repository::repository_named()) } else { Ok(()) }
}

fn text(arguments: Json<'_>, name: &str) -> Result<String, Error> {
    arguments.given(name).map_or(Ok(String::new()), |text| Ok(text.text()?.into_owned()))
}

#[cfg(test)]
mod tests {
    use kushi_dataplane::{Change, Overrides, RegionPlace};

    use super::*;
    use crate::document::unreadable;

    #[test]
    fn reads_verbs_by_the_names_of_grpc() {
        let (model, version) = ("m".to_owned(), || AskedVersion::Number(7));
        let asked = br#"{"name":"m","version":"7"}"#;
        for (name, arguments, expected) in [
            ("ServerLive", &b""[..], Verb::ServerLive),
            ("ServerReady", b"{}", Verb::ServerReady),
            ("ServerMetadata", b" {} ", Verb::ServerMetadata),
            ("Metrics", b"", Verb::Metrics),
            ("ModelReady", asked, Verb::ModelReady { model: model.clone(), version: version() }),
            ("ModelMetadata", asked, Verb::ModelMetadata { model: model.clone(), version: version() }),
            ("ModelConfig", asked, Verb::ModelConfig { model: model.clone(), version: version() }),
            ("ModelStatistics", asked, Verb::ModelStatistics { model: model.clone(), version: version() }),
            (
                "ModelStatistics",
                b"",
                Verb::ModelStatistics { model: String::new(), version: AskedVersion::Any },
            ),
            (
                "ModelReady",
                br#"{"name":"m","version":null}"#,
                Verb::ModelReady { model, version: AskedVersion::Any },
            ),
        ] {
            assert_eq!(verb(name, arguments), Ok(expected), "{name}");
        }
    }

    #[test]
    fn reads_what_changes_models() {
        let model = "a b".to_owned();
        let index = |ready_only| Ok(Verb::RepositoryIndex { ready_only });
        assert_eq!(verb("RepositoryIndex", br#"{"repository_name":""}"#), index(false));
        assert_eq!(verb("RepositoryIndex", br#"{"ready":true}"#), index(true));
        assert_eq!(
            verb(
                "RepositoryModelLoad",
                br#"{"model_name":"a b","parameters":{"config":"{}","file:1/m":""}}"#
            ),
            Ok(Verb::RepositoryModelLoad {
                model: model.clone(),
                overrides: Overrides {
                    config: Some("{}".into()),
                    files: vec![("1/m".into(), Vec::new())],
                    versions: None,
                },
            })
        );
        assert_eq!(
            verb("RepositoryModelUnload", br#"{"model_name":"a b","parameters":{"unload_dependents":true}}"#),
            Ok(Verb::RepositoryModelUnload { model, dependents: true })
        );
    }

    #[test]
    fn reads_regions() {
        let region = "r".to_owned();
        let (system, cuda) = (Memory::System, Memory::Cuda);
        for (name, memory) in [("SystemSharedMemory", system), ("CudaSharedMemory", cuda)] {
            let asked = |what: &str, arguments| verb(&format!("{name}{what}"), arguments);
            let status = Verb::SharedMemoryStatus { memory, region: region.clone() };
            assert_eq!(asked("Status", br#"{"name":"r"}"#), Ok(status));
            let all = Verb::SharedMemoryUnregister { memory, region: String::new() };
            assert_eq!(asked("Unregister", b"{}"), Ok(all));
        }
        let place = Ok(RegionPlace { key: "/k".into(), offset: 4, byte_size: 8 });
        assert_eq!(
            verb("SystemSharedMemoryRegister", br#"{"name":"r","key":"/k","offset":4,"byte_size":8}"#),
            Ok(Verb::SystemSharedMemoryRegister { region: region.clone(), place })
        );
        let place = Err(unreadable("attempt to access non-existing object member 'b64'"));
        assert_eq!(
            verb("CudaSharedMemoryRegister", br#"{"name":"r","raw_handle":{}}"#),
            Ok(Verb::CudaSharedMemoryRegister { region, place })
        );
    }

    #[test]
    fn settings_that_are_not_there_ask() {
        assert_eq!(verb("LogSettings", b""), Ok(Verb::LogSettings(LogChange::default())));
        let change = LogChange { info: Some(false), ..LogChange::default() };
        assert_eq!(verb("LogSettings", br#"{"settings":{"log_info":false}}"#), Ok(Verb::LogSettings(change)));
        let traces = |model: &str, change| Ok(Verb::TraceSetting { model: model.into(), change });
        let asked = Ok(TraceChange::default());
        assert_eq!(verb("TraceSetting", br#"{"model_name":"m","settings":null}"#), traces("m", asked));
        let change = Ok(TraceChange { rate: Change::To(2), ..TraceChange::default() });
        assert_eq!(verb("TraceSetting", br#"{"settings":{"trace_rate":"2"}}"#), traces("", change));
    }

    #[test]
    fn what_a_verb_looks_at_first_is_read_whatever_comes_with_it() {
        let Ok(Verb::TraceSetting { model, change }) =
            verb("TraceSetting", br#"{"model_name":"m","settings":{"trace_rate":5}}"#)
        else {
            panic!("not read")
        };
        assert_eq!((&*model, change.is_err()), ("m", true));
        let Ok(Verb::SystemSharedMemoryRegister { region, place }) =
            verb("SystemSharedMemoryRegister", br#"{"name":"r"}"#)
        else {
            panic!("not read")
        };
        assert_eq!((&*region, place.is_err()), ("r", true));
    }

    #[test]
    fn what_is_no_verb_is_refused() {
        let refused =
            |name, arguments| verb(name, arguments).map_err(|error| (error.kind, error.to_string()));
        let wrong = |kind, text: &str| Err((kind, text.to_owned()));
        assert_eq!(refused("ModelInfer", b""), wrong(ErrorKind::Unsupported, "unknown verb 'ModelInfer'"));
        let text = "'repository_name' specification is not supported";
        for name in ["RepositoryIndex", "RepositoryModelLoad", "RepositoryModelUnload"] {
            let named = br#"{"repository_name":"r","ready":5,"parameters":5}"#;
            assert_eq!(refused(name, named), wrong(ErrorKind::Unsupported, text), "{name}");
        }
        let text = "failed to get model version from specified version string '1x' (details: stol), version should be \
                    an integral value > 0";
        let named = br#"{"name":"m","version":"1x"}"#;
        assert_eq!(refused("ModelReady", named), wrong(ErrorKind::InvalidInput, text));
        let text = "attempt to access JSON non-string as string";
        assert_eq!(refused("ModelConfig", br#"{"name":5}"#), wrong(ErrorKind::UnreadableInput, text));
        let text = "failed to parse the request JSON buffer: Invalid value. at 0";
        assert_eq!(refused("ServerLive", b"?"), wrong(ErrorKind::UnreadableInput, text));
    }
}
