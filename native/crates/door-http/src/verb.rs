//! What a route asks of the data plane, and the answer over HTTP.

use kushi_core::Error;
use kushi_dataplane::{Action, Answer as Answered, LogChange, Memory, TraceChange, Verb};
use kushi_oip::{management, version_number};

use crate::answer::{self, Answer};
use crate::route::{About, Management, RegionAction, Settings};

/// The verb, or what is wrong with what was sent.
pub(crate) fn verb(route: Management<'_>, body: &[u8]) -> Result<Verb, Error> {
    Ok(match route {
        Management::Server => Verb::ServerMetadata,
        Management::Live => Verb::ServerLive,
        Management::Ready => Verb::ServerReady,
        Management::AllStatistics => Verb::ModelStatistics { model: String::new(), version: None },
        Management::Metrics => Verb::Metrics,
        Management::Model { model, version, about } => {
            let (model, version) = (model.into_owned(), version_number(version)?);
            match about {
                About::Metadata => Verb::ModelMetadata { model, version },
                About::Ready => Verb::ModelReady { model, version },
                About::Config => Verb::ModelConfig { model, version },
                About::Statistics => Verb::ModelStatistics { model, version },
            }
        }
        Management::Index { repository: true } | Management::Control { repository: true, .. } => {
            return Err(management::repository_named());
        }
        Management::Index { .. } => Verb::RepositoryIndex { ready_only: management::ready_only(body)? },
        Management::Control { model, action: Action::Load, .. } => Verb::RepositoryModelLoad {
            model: model.into_owned(),
            parameters: management::load_parameters(body)?,
        },
        Management::Control { model, action: Action::Unload, .. } => {
            management::check_unload_parameters(body)?;
            Verb::RepositoryModelUnload { model: model.into_owned() }
        }
        Management::Regions { memory, region, action } => {
            let region = region.into_owned();
            match (action, memory) {
                (RegionAction::Status, _) => Verb::SharedMemoryStatus { memory, region },
                (RegionAction::Register, Memory::System) => {
                    Verb::SystemSharedMemoryRegister { region, place: management::region_place(body) }
                }
                (RegionAction::Register, Memory::Cuda) => Verb::CudaSharedMemoryRegister { region },
                (RegionAction::Unregister, _) => Verb::SharedMemoryUnregister { memory, region },
            }
        }
        Management::Settings { of: Settings::Log, change } => {
            let change = if change { management::log_change(body)? } else { LogChange::default() };
            Verb::LogSettings(change)
        }
        Management::Settings { of: Settings::Trace(model), change } => {
            let change = if change { management::trace_change(body) } else { Ok(TraceChange::default()) };
            Verb::TraceSetting { model: model.into_owned(), change }
        }
    })
}

/// Whether a server or a model is well is the status alone.
pub(crate) fn answer(answered: Result<Answered, Error>) -> Answer {
    match answered {
        Ok(Answered::Done | Answered::Health(true)) => answer::empty(200),
        Ok(Answered::Health(false)) => answer::empty(400),
        Ok(Answered::Metrics(text)) => answer::text(text),
        Ok(answered) => answer::json(200, management::render(&answered)),
        Err(error) => answer::error(&error),
    }
}
