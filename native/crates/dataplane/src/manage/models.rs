//! What is asked of models: readiness, metadata, statistics.

use std::sync::Arc;

use kushi_core::{Error, Runner, State, TensorSpec};

use crate::observed::Observed;
use crate::plane::not_ready;
use crate::{AskedVersion, DataPlane, ModelMetadata, ModelStatistics, Phase, TensorMetadata};

impl DataPlane {
    /// The version whose readiness is asked for.
    pub(super) fn asked_version(&self, model: &str, version: &AskedVersion) -> Result<Arc<Runner>, Error> {
        let runner = self.find(model, version)?;
        if self.phase() == Phase::Exiting {
            return Err(not_ready());
        }
        Ok(runner)
    }

    pub(super) fn model_metadata(&self, model: &str, version: &AskedVersion) -> Result<ModelMetadata, Error> {
        let runner = self.find(model, version)?;
        let spec = runner.spec();
        let tensors = |specs: &[TensorSpec]| {
            specs.iter().map(|tensor| tensor_metadata(tensor, spec.max_batch_size > 0)).collect()
        };
        Ok(ModelMetadata {
            name: spec.name.clone(),
            versions: match version {
                AskedVersion::Any => self.ready_versions(model),
                _ => vec![spec.version],
            },
            platform: spec.platform.clone(),
            inputs: tensors(&spec.inputs),
            outputs: tensors(&spec.outputs),
        })
    }

    fn ready_versions(&self, model: &str) -> Vec<u64> {
        let runners = self.registry.runners();
        let of_model =
            runners.iter().filter(|runner| runner.spec().name == model && runner.state() == State::Ready);
        of_model.map(|runner| runner.spec().version).collect()
    }

    pub(super) fn statistics(
        &self,
        model: &str,
        version: &AskedVersion,
    ) -> Result<Vec<ModelStatistics>, Error> {
        let number = self.registry.number(model, version)?;
        let mut runners = self.registry.runners();
        if !model.is_empty() {
            runners.retain(|runner| runner.spec().name == model);
            if runners.is_empty() {
                return Err(Error::invalid(format!("requested model '{model}' is not available")));
            }
            runners.retain(|runner| number.is_none_or(|number| runner.spec().version == number));
            if runners.is_empty() {
                let text = format!("requested model version is not available for model '{model}'");
                return Err(Error::invalid(text));
            }
        }
        let statistics = runners.iter().map(|runner| ModelStatistics {
            name: runner.spec().name.clone(),
            version: runner.spec().version,
            counts: runner.statistics(),
            responses: Observed::of_runner(runner).map(Observed::response_rows).unwrap_or_default(),
        });
        Ok(statistics.collect())
    }

    /// Whether the settings of traces may be asked for; `model`: empty for all.
    pub(super) fn check_traced(&self, model: &str) -> Result<(), Error> {
        let serves = || {
            self.registry.find(model, &AskedVersion::Any).is_ok_and(|runner| runner.state() == State::Ready)
        };
        if model.is_empty() || serves() {
            return Ok(());
        }
        Err(Error::invalid(format!("Request for unknown model : {model}")))
    }
}

fn tensor_metadata(spec: &TensorSpec, batched: bool) -> TensorMetadata {
    let shape = batched.then_some(-1).into_iter().chain(spec.dims.iter().copied()).collect();
    TensorMetadata { name: spec.name.clone(), datatype: spec.datatype, shape }
}
