//! Everything but inference, as values: a verb goes in, an answer comes out.
//!
//! Whoever asks knows a protocol, or calls from this process; nothing here knows either. An answer is there at once,
//! or needs a thread that may block, or waits for the control plane: the asker hears it in the same way.

mod answers;
mod models;
mod regions;
mod repository;
mod verbs;

use std::sync::{Arc, mpsc};

use kushi_core::{Error, ErrorKind, Runner};

use crate::plane::not_ready;
use crate::{Action, Asker, DataPlane, Phase, metrics};

pub use answers::{IndexEntry, ModelMetadata, ModelStatistics, TensorMetadata, VerbAnswer};
pub use regions::region_error;
pub use verbs::{CudaPlace, RegionPlace, Sent, Verb};

/// Hears what comes of a verb, once. It must not wait.
pub type OnAnswer = Box<dyn FnOnce(Result<VerbAnswer, Error>) + Send>;

/// The rest of a verb's work: for a thread that may block.
pub type Slow = Box<dyn FnOnce() + Send>;

/// The same with its answer.
type Work = Box<dyn FnOnce(&DataPlane) -> Result<VerbAnswer, Error> + Send>;

/// How an answer comes about.
enum BegunVerb {
    Done(VerbAnswer),
    /// The version says whether it is ready.
    Asked(Arc<Runner>),
    Aside(Work),
    /// The control plane carries it out.
    Ordered {
        action: Action,
        model: String,
    },
}

impl DataPlane {
    /// Carries out a verb. `on_answer` hears what comes of it: before this returns, or later and on another thread.
    /// Work that is handed back answers when it has run.
    #[must_use = "work that is handed back has not been done"]
    pub fn perform(self: &Arc<Self>, verb: Verb, on_answer: OnAnswer) -> Option<Slow> {
        self.perform_for(Asker::Client, verb, on_answer)
    }

    fn perform_for(self: &Arc<Self>, asker: Asker, verb: Verb, on_answer: OnAnswer) -> Option<Slow> {
        match self.begin(verb) {
            Ok(BegunVerb::Done(answer)) => on_answer(Ok(answer)),
            Ok(BegunVerb::Asked(runner)) => {
                runner.ask_ready(Box::new(move |ready| on_answer(Ok(VerbAnswer::Health(ready)))));
            }
            Ok(BegunVerb::Aside(work)) => {
                let plane = self.clone();
                return Some(Box::new(move || on_answer(work(&plane))));
            }
            Ok(BegunVerb::Ordered { action, model }) => {
                let done = move |done: Result<(), Error>| on_answer(done.map(|()| VerbAnswer::Done));
                self.orders.place(action, &model, asker, Box::new(done));
            }
            Err(error) => on_answer(Err(error)),
        }
        None
    }

    /// The same on a thread that may block.
    pub fn perform_blocking(self: &Arc<Self>, asker: Asker, verb: Verb) -> Result<VerbAnswer, Error> {
        let (sender, receiver) = mpsc::channel();
        if let Some(work) = self.perform_for(asker, verb, Box::new(move |answer| drop(sender.send(answer)))) {
            work();
        }
        receiver.recv().unwrap_or_else(|_| Err(unanswered()))
    }

    fn begin(&self, verb: Verb) -> Result<BegunVerb, Error> {
        Ok(BegunVerb::Done(match verb {
            Verb::ServerLive => self.health(self.phase() == Phase::Serving)?,
            Verb::ServerReady => self.health(self.is_ready())?,
            Verb::ServerMetadata => return Ok(self.server_metadata()),
            Verb::ModelReady { model, version } => {
                return Ok(BegunVerb::Asked(self.asked_version(&model, &version)?));
            }
            Verb::ModelMetadata { model, version } => {
                VerbAnswer::ModelMetadata(self.model_metadata(&model, &version)?)
            }
            Verb::ModelConfig { model, version } => {
                VerbAnswer::ModelConfig(self.find(&model, &version)?.config())
            }
            Verb::ModelStatistics { model, version } => {
                VerbAnswer::ModelStatistics(self.statistics(&model, &version)?)
            }
            Verb::RepositoryIndex { ready_only } => {
                self.check_serving()?;
                // It reads directories.
                return Ok(BegunVerb::Aside(Box::new(move |plane| {
                    Ok(VerbAnswer::Index(plane.index(ready_only)))
                })));
            }
            Verb::RepositoryModelLoad { model, overrides } => {
                self.check_control()?;
                return Ok(BegunVerb::Ordered { action: Action::Load(overrides), model });
            }
            Verb::RepositoryModelUnload { model, dependents } => {
                self.check_control()?;
                return Ok(BegunVerb::Ordered { action: Action::Unload { dependents }, model });
            }
            Verb::SharedMemoryStatus { memory, region } => self.region_status(memory, &region)?,
            Verb::SystemSharedMemoryRegister { region, place } => self.register_region(region, place)?,
            Verb::CudaSharedMemoryRegister { region, place } => {
                return self.register_cuda_region(region, place);
            }
            Verb::SharedMemoryUnregister { memory, region } => {
                return self.unregister_region(memory, region);
            }
            Verb::LogSettings(change) => {
                VerbAnswer::LogSettings { file: self.log.file(), settings: self.log.change(change) }
            }
            Verb::TraceSetting { model, change } => {
                self.check_traced(&model)?;
                VerbAnswer::TraceSetting(self.traces.change(&model, change?)?)
            }
            Verb::Metrics => VerbAnswer::Metrics(metrics::render(self)),
        }))
    }

    /// Whether there are GPUs is asked for where clients may have memory there: once, which takes its time.
    fn server_metadata(&self) -> BegunVerb {
        if !self.allow_client_regions {
            return BegunVerb::Done(VerbAnswer::ServerMetadata(self.metadata.clone()));
        }
        match kushi_shm::knows_gpus() {
            Some(has_gpus) => BegunVerb::Done(self.metadata_with(has_gpus)),
            None => BegunVerb::Aside(Box::new(|plane| Ok(plane.metadata_with(kushi_shm::has_gpus())))),
        }
    }

    fn metadata_with(&self, has_gpus: bool) -> VerbAnswer {
        let mut metadata = self.metadata.clone();
        if has_gpus {
            metadata.extensions.push("cuda_shared_memory".into());
        }
        VerbAnswer::ServerMetadata(metadata)
    }

    fn health(&self, well: bool) -> Result<VerbAnswer, Error> {
        match self.phase() {
            Phase::Exiting => Err(Error::new(ErrorKind::ShuttingDown, "Server exiting")),
            _ => Ok(VerbAnswer::Health(well)),
        }
    }

    fn check_serving(&self) -> Result<(), Error> {
        if self.phase() == Phase::Serving { Ok(()) } else { Err(not_ready()) }
    }

    /// Whether clients may load and unload models now.
    fn check_control(&self) -> Result<(), Error> {
        self.check_serving()?;
        if self.explicit_control {
            return Ok(());
        }
        let text = "explicit model load / unload is not allowed if polling is enabled";
        Err(Error::new(ErrorKind::ControlDisabled, text))
    }
}

/// For an asker whose answer was lost: the work that would have brought it has failed.
pub fn unanswered() -> Error {
    Error::new(ErrorKind::Internal, "an answer was lost, see the log of the server")
}
