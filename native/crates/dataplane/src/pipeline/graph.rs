//! What an ensemble is made of: its steps, and the tensors that they hand on. Never changes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use kushi_core::{Error, ErrorKind, ModelSpec, Request};
use serde::Deserialize;

/// A step as the control plane hands it over: names of the model's tensors, and of the ensemble's.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepSpec {
    pub model: String,
    /// `None`: the latest that is ready.
    pub version: Option<u64>,
    pub inputs: BTreeMap<String, String>,
    pub outputs: BTreeMap<String, String>,
    /// So many answers of this step to one request may be in the steps behind it. 0: as many as anywhere.
    #[serde(default)]
    pub max_inflight_requests: usize,
}

/// Tensors have numbers. Each is an input of the ensemble or an output of one step.
pub(crate) struct Graph {
    pub(crate) steps: Vec<Step>,
    pub(crate) tensors: usize,
    /// By position in the ensemble's specification.
    pub(crate) inputs: Vec<usize>,
    pub(crate) outputs: Vec<usize>,
    /// The step that makes a tensor; `None`: an input of the ensemble.
    makers: Vec<Option<usize>>,
    /// The steps that read a tensor.
    readers: Vec<Vec<usize>>,
    /// The steps that a request for all outputs needs.
    all: Arc<[bool]>,
}

pub(crate) struct Step {
    pub(crate) model: String,
    pub(crate) version: Option<u64>,
    /// The model's name of a tensor, and the tensor's number here.
    pub(crate) inputs: Vec<(String, usize)>,
    pub(crate) outputs: Vec<(String, usize)>,
    pub(crate) max_inflight_requests: usize,
}

impl Graph {
    /// The control plane has checked it, with better texts.
    pub(crate) fn new(spec: &ModelSpec, steps: &[StepSpec]) -> Result<Self, Error> {
        let fault =
            |text: String| Error::new(ErrorKind::ConfigInvalid, format!("ensemble '{}': {text}", spec.name));
        let mut numbers = HashMap::new();
        let mut number = |name: &str| {
            let next = numbers.len();
            *numbers.entry(name.to_owned()).or_insert(next)
        };
        let inputs: Vec<_> = spec.inputs.iter().map(|input| number(&input.name)).collect();
        let mut map = |names: &BTreeMap<String, String>| {
            names.iter().map(|(of_model, name)| (of_model.clone(), number(name))).collect()
        };
        let steps: Vec<_> = steps
            .iter()
            .map(|step| Step {
                model: step.model.clone(),
                version: step.version,
                inputs: map(&step.inputs),
                outputs: map(&step.outputs),
                max_inflight_requests: step.max_inflight_requests,
            })
            .collect();
        let outputs: Vec<_> = spec.outputs.iter().map(|output| number(&output.name)).collect();
        let tensors = numbers.len();
        let mut makers = vec![None; tensors];
        let mut readers = vec![Vec::new(); tensors];
        let mut made = vec![false; tensors];
        for &input in &inputs {
            made[input] = true;
        }
        for (index, step) in steps.iter().enumerate() {
            if step.inputs.is_empty() {
                return Err(fault(format!("step '{}' has no input", step.model)));
            }
            step.inputs.iter().for_each(|&(_, tensor)| readers[tensor].push(index));
            for &(_, tensor) in &step.outputs {
                if std::mem::replace(&mut made[tensor], true) {
                    return Err(fault(format!("an output of step '{}' is made twice", step.model)));
                }
                makers[tensor] = Some(index);
            }
        }
        if let Some((name, _)) = numbers.iter().find(|&(_, &tensor)| !made[tensor]) {
            return Err(fault(format!("nothing makes tensor '{name}'")));
        }
        let mut graph = Self { steps, tensors, inputs, outputs, makers, readers, all: Arc::default() };
        graph.all = graph.needed_for(graph.outputs.iter().copied());
        Ok(graph)
    }

    /// The steps that make what this request wants, and what those need.
    pub(crate) fn needed(&self, request: &Request) -> Arc<[bool]> {
        if request.wanted.is_empty() {
            return self.all.clone();
        }
        self.needed_for(request.wanted.iter().map(|&output| self.outputs[usize::from(output)]))
    }

    /// Whether nobody reads a tensor any more, once these steps have begun.
    pub(crate) fn nobody_reads(&self, tensor: usize, needed: &[bool], begun: &[bool]) -> bool {
        let has_begun = |&step: &usize| begun[step] || !needed[step];
        self.readers[tensor].iter().all(has_begun) && !self.outputs.contains(&tensor)
    }

    fn needed_for(&self, tensors: impl Iterator<Item = usize>) -> Arc<[bool]> {
        let mut needed = vec![false; self.steps.len()];
        let mut look: Vec<_> = tensors.collect();
        while let Some(tensor) = look.pop() {
            if let Some(step) = self.makers[tensor]
                && !std::mem::replace(&mut needed[step], true)
            {
                look.extend(self.steps[step].inputs.iter().map(|&(_, input)| input));
            }
        }
        needed.into()
    }
}
