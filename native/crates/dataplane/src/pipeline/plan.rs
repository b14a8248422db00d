//! Which models stand behind the steps of an ensemble, until one of them is reloaded.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use kushi_core::{Error, ErrorKind, Labels, ModelSpec, Request, Runner, Tensor, TensorSpec, Wanted};

use super::Graph;
use crate::{AskedVersion, Registry, VersionRoutes};

/// Of the versions that share the requests of models: for further ones, a plan is made each time.
const MOST_VARIANTS: usize = 256;

pub(super) struct Plan {
    /// Of the steps, in their order.
    pub(super) runners: Vec<Arc<Runner>>,
    pub(super) steps: Vec<PlannedStep>,
    /// Of the classes of the ensemble's outputs, from the models that make them. `None`: none has any.
    pub(super) labels: Option<Arc<[Labels]>>,
    /// Of the registry, when they were found.
    pub(super) generation: u64,
    /// The models of steps whose versions share their requests: here, the version with the most of them.
    pub(super) shared: Vec<(String, Arc<VersionRoutes>)>,
    /// The same with other versions of these.
    variants: Mutex<HashMap<Vec<u64>, Arc<Self>>>,
}

pub(super) struct PlannedStep {
    /// By position in the model's specification: the number of the tensor.
    pub(super) inputs: Vec<Option<usize>>,
    pub(super) outputs: Vec<Option<usize>>,
    /// What is asked of the model: the outputs that have a number.
    pub(super) wanted: Wanted,
}

impl Plan {
    pub(super) fn find(graph: &Graph, registry: &Registry) -> Result<Self, Error> {
        Self::find_with(graph, registry, &[])
    }

    /// The plan for a request that goes where the weights of these models, and its keys, say.
    pub(super) fn variant(
        &self,
        graph: &Graph,
        registry: &Registry,
        request: &Request,
    ) -> Result<Arc<Self>, Error> {
        let choose = |(_, routes): &(String, Arc<VersionRoutes>)| routes.choose(routes.key(request));
        let versions: Vec<u64> = self.shared.iter().filter_map(choose).collect();
        let variants = || self.variants.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = variants().get(&versions) {
            return Ok(known.clone());
        }
        let models = self.shared.iter().map(|(model, _)| model.as_str());
        let chosen: Vec<(&str, u64)> = models.zip(versions.iter().copied()).collect();
        let plan = Arc::new(Self::find_with(graph, registry, &chosen)?);
        let mut variants = variants();
        if variants.len() < MOST_VARIANTS {
            variants.insert(versions, plan.clone());
        }
        Ok(plan)
    }

    fn find_with(graph: &Graph, registry: &Registry, chosen: &[(&str, u64)]) -> Result<Self, Error> {
        let generation = registry.generation();
        let mut shared: Vec<(String, Arc<VersionRoutes>)> = Vec::new();
        let mut runners = Vec::with_capacity(graph.steps.len());
        let mut steps = Vec::with_capacity(graph.steps.len());
        for step in &graph.steps {
            let runner = registry.route(&step.model, &AskedVersion::from(step.version), |routes| {
                if shared.iter().all(|(model, _)| *model != step.model) {
                    shared.push((step.model.clone(), routes.clone()));
                }
                let chosen = chosen.iter().find(|(model, _)| *model == step.model);
                chosen.map(|(_, version)| *version).or_else(|| routes.main())
            })?;
            let spec = runner.spec();
            let inputs = places(spec, "input", &spec.inputs, &step.inputs)?;
            let outputs = places(spec, "output", &spec.outputs, &step.outputs)?;
            let is_wanted = |(place, tensor): (usize, &Option<usize>)| tensor.map(|_| place as u16);
            let wanted = outputs.iter().enumerate().filter_map(is_wanted).collect();
            steps.push(PlannedStep { inputs, outputs, wanted });
            runners.push(runner);
        }
        let labels = labels(graph, &runners, &steps);
        Ok(Self { runners, steps, labels, generation, shared, variants: Mutex::default() })
    }
}

fn labels(graph: &Graph, runners: &[Arc<Runner>], steps: &[PlannedStep]) -> Option<Arc<[Labels]>> {
    let of_tensor = |&tensor: &usize| {
        let made = runners.iter().zip(steps).find_map(|(runner, step)| {
            let place = step.outputs.iter().position(|&made| made == Some(tensor))?;
            Some(runner.spec().outputs[place].labels.clone())
        });
        made.unwrap_or_default()
    };
    let labels: Arc<[Labels]> = graph.outputs.iter().map(of_tensor).collect();
    labels.iter().any(|labels| !labels.is_empty()).then_some(labels)
}

fn places(
    spec: &ModelSpec,
    what: &str,
    tensors: &[TensorSpec],
    map: &[(String, usize)],
) -> Result<Vec<Option<usize>>, Error> {
    let mut places = vec![None; tensors.len()];
    for (name, tensor) in map {
        let place = tensors.iter().position(|tensor| tensor.name == *name).ok_or_else(|| {
            let model = &spec.name;
            Error::new(
                ErrorKind::ModelUnavailable,
                format!("model '{model}' has no {what} '{name}' any more"),
            )
        })?;
        places[place] = Some(*tensor);
    }
    Ok(places)
}

/// The same tensor for a model that has a batch dimension where the other had none, or the other way round: one of 1 row
/// comes or goes.
pub(super) fn fit(spec: &ModelSpec, dims: &[i64], tensor: &mut Tensor) {
    let (rank, batched) = (tensor.shape.len(), spec.max_batch_size > 0);
    if batched && rank == dims.len() {
        tensor.shape.insert(0, 1);
    } else if !batched && rank == dims.len() + 1 && tensor.shape[0] == 1 {
        tensor.shape.remove(0);
    }
}
