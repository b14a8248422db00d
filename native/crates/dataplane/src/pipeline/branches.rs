//! The tensors of one run, and what is due with them.
//!
//! A step that answers once puts its outputs where its inputs are: in the first branch, which has the inputs of the run.
//! Each answer of a stream begins a branch of its own, in which the steps behind it run once more; they see what the
//! branches have that it came from. The n-th answers of two streams meet in the n-th branch.

use kushi_core::{Credit, Inputs, Response, Tensor};
use smallvec::SmallVec;

use super::Graph;
use super::plan::Plan;

/// Which answer of which stream it came from, from the first stream on. Empty: the first branch.
pub(super) type Path = SmallVec<[u32; 2]>;

pub(super) struct Branches {
    /// Ascending, which is the order in which their answers leave. A branch stands before those that came from it.
    list: Vec<(Path, Branch)>,
}

struct Branch {
    /// By the numbers of the tensors.
    places: Vec<TensorPlace>,
    begun: SmallVec<[bool; 8]>,
    /// Of the answers that it began with: dropped with it, so that so many are behind their steps and no more.
    credits: SmallVec<[Credit; 1]>,
    /// A stream that began here has ended: there are no more branches from here than it had answers.
    limit: Option<u32>,
    /// Found no room.
    unsent: Option<Response>,
}

pub(super) enum Next {
    /// As the steps have made it.
    New(Response),
    /// As it found no room.
    Again(Response),
}

#[derive(Clone)]
enum TensorPlace {
    Empty,
    /// An optional input that the asker left out.
    LeftOut,
    /// A step has answered without this output of its.
    NotMade,
    Full(Tensor),
}

impl Branch {
    fn new(graph: &Graph) -> Self {
        Self {
            places: vec![TensorPlace::Empty; graph.tensors],
            begun: SmallVec::from_elem(false, graph.steps.len()),
            credits: SmallVec::new(),
            limit: None,
            unsent: None,
        }
    }
}

impl Branches {
    pub(super) fn new(graph: &Graph, inputs: impl Iterator<Item = Option<Tensor>>) -> Self {
        let mut first = Branch::new(graph);
        for (&tensor, input) in graph.inputs.iter().zip(inputs) {
            first.places[tensor] = input.map_or(TensorPlace::LeftOut, TensorPlace::Full);
        }
        Self { list: vec![(Path::new(), first)] }
    }

    fn find(&self, path: &[u32]) -> Result<usize, usize> {
        self.list.binary_search_by(|(at, _)| at[..].cmp(path))
    }

    /// Puts tensors where a step has made them; `planned` are those that it could make. False: this branch is of no
    /// use any more.
    pub(super) fn put(
        &mut self,
        path: &[u32],
        planned: impl Iterator<Item = usize>,
        tensors: impl Iterator<Item = (usize, Tensor)>,
    ) -> bool {
        let Ok(at) = self.find(path) else { return false };
        let places = &mut self.list[at].1.places;
        planned.for_each(|place| places[place] = TensorPlace::NotMade);
        tensors.for_each(|(place, tensor)| places[place] = TensorPlace::Full(tensor));
        true
    }

    /// The branch of the n-th answer of a stream that began at `path`; `None`: it is of no use.
    pub(super) fn branch(&mut self, graph: &Graph, path: &[u32], answer: u32) -> Option<Path> {
        let from = &self.list[self.find(path).ok()?].1;
        if from.limit.is_some_and(|limit| answer >= limit) {
            return None;
        }
        let mut branch = Path::from_slice(path);
        branch.push(answer);
        if let Err(at) = self.find(&branch) {
            self.list.insert(at, (branch.clone(), Branch::new(graph)));
        }
        Some(branch)
    }

    pub(super) fn keep(&mut self, path: &[u32], credit: Credit) {
        if let Ok(at) = self.find(path) {
            self.list[at].1.credits.push(credit);
        }
    }

    /// A stream that began at `path` had so many answers. Takes out the branches that cannot come to an end.
    pub(super) fn limit(&mut self, path: &[u32], answers: u32, out: &mut Vec<Credit>) {
        let Ok(at) = self.find(path) else { return };
        let limit = self.list[at].1.limit.map_or(answers, |limit| limit.min(answers));
        self.list[at].1.limit = Some(limit);
        self.list.retain_mut(|(other, branch)| {
            let goes = other.starts_with(path) && other.get(path.len()).is_some_and(|&nth| nth >= limit);
            if goes {
                out.extend(branch.credits.drain(..));
            }
            !goes
        });
    }

    pub(super) fn clear(&mut self, out: &mut Vec<Credit>) {
        self.list.drain(..).for_each(|(_, branch)| out.extend(branch.credits));
    }

    /// What a branch sees of a tensor, and whether that is its own.
    fn see(&self, path: &[u32], tensor: usize) -> Option<(&TensorPlace, bool)> {
        (0..=path.len()).rev().find_map(|depth| {
            let place = &self.list[self.find(&path[..depth]).ok()?].1.places[tensor];
            (!matches!(place, TensorPlace::Empty)).then_some((place, depth == path.len()))
        })
    }

    /// Whether a branch sees all of these, and has one of them.
    fn sees(&self, path: &[u32], tensors: impl Iterator<Item = usize>) -> bool {
        let mut own = false;
        for tensor in tensors {
            match self.see(path, tensor) {
                Some((_, is_own)) => own |= is_own,
                None => return false,
            }
        }
        own
    }

    /// The steps that can begin with what has come to `path`, there and in the branches that came from it.
    pub(super) fn begin_due(
        &mut self,
        plan: &Plan,
        needed: &[bool],
        path: &[u32],
    ) -> SmallVec<[(usize, Path); 2]> {
        let mut due = SmallVec::new();
        let first = self.find(path).unwrap_or_else(|at| at);
        for at in first..self.list.len() {
            if !self.list[at].0.starts_with(path) {
                break;
            }
            for (step, &is_needed) in needed.iter().enumerate() {
                let (here, branch) = &self.list[at];
                let inputs = || plan.steps[step].inputs.iter().flatten().copied();
                if is_needed && !branch.begun[step] && self.sees(here, inputs()) {
                    due.push((step, here.clone()));
                    self.list[at].1.begun[step] = true;
                }
            }
        }
        due
    }

    /// Takes out of the first branch what nobody reads any more.
    pub(super) fn release(&mut self, graph: &Graph, needed: &[bool], out: &mut Vec<Tensor>) {
        let Some((_, first)) = self.list.first_mut() else { return };
        for (tensor, place) in first.places.iter_mut().enumerate() {
            if let TensorPlace::Full(_) = place
                && graph.nobody_reads(tensor, needed, &first.begun)
                && let TensorPlace::Full(read) = std::mem::replace(place, TensorPlace::Empty)
            {
                out.push(read);
            }
        }
    }

    /// By position in the specification of the step's model.
    pub(super) fn inputs(&self, path: &[u32], tensors: &[Option<usize>]) -> Inputs {
        let input = |tensor: &Option<usize>| match self.see(path, (*tensor)?)? {
            (TensorPlace::Full(tensor), _) => Some(tensor.clone()),
            _ => None,
        };
        tensors.iter().map(input).collect()
    }

    /// What the first branch answers.
    pub(super) fn answer(&self, graph: &Graph, wanted: &[u16]) -> Option<Response> {
        self.answer_at(&[], graph, wanted)
    }

    fn answer_at(&self, path: &[u32], graph: &Graph, wanted: &[u16]) -> Option<Response> {
        let is_wanted = |output: &u16| wanted.is_empty() || wanted.contains(output);
        let outputs = || (0..graph.outputs.len() as u16).filter(is_wanted);
        let is_not_made = |output: u16| {
            matches!(self.see(path, graph.outputs[usize::from(output)]), Some((TensorPlace::NotMade, _)))
        };
        if !self.sees(path, outputs().map(|output| graph.outputs[usize::from(output)]))
            || outputs().any(is_not_made)
        {
            return None;
        }
        let tensor = |output: u16| match self.see(path, graph.outputs[usize::from(output)])? {
            (TensorPlace::Full(tensor), _) => Some((output, tensor.clone())),
            _ => None,
        };
        Some(Response { outputs: outputs().filter_map(tensor).collect(), ..Response::default() })
    }

    /// The answer that leaves next, of branches of streams. Those that have come to their end without one go.
    pub(super) fn next_answer(
        &mut self,
        graph: &Graph,
        wanted: &[u16],
        is_busy: impl Fn(&[u32]) -> bool,
        out: &mut Vec<Credit>,
    ) -> Option<(Path, Next)> {
        let mut at = 1;
        while at < self.list.len() {
            let path = self.list[at].0.clone();
            if let Some(answer) = self.list[at].1.unsent.take() {
                return Some((path, Next::Again(answer)));
            }
            if let Some(answer) = self.answer_at(&path, graph, wanted) {
                return Some((path, Next::New(answer)));
            }
            let has_branch = self.list.get(at + 1).is_some_and(|(next, _)| next.starts_with(&path));
            if has_branch {
                at += 1;
            } else if self.list[at].1.limit.is_some() && !is_busy(&path) {
                self.remove(&path, out);
                at = 1;
            } else {
                break;
            }
        }
        None
    }

    pub(super) fn found_no_room(&mut self, path: &[u32], answer: Response) {
        if let Ok(at) = self.find(path) {
            self.list[at].1.unsent = Some(answer);
        }
    }

    /// A branch that has answered.
    pub(super) fn remove(&mut self, path: &[u32], out: &mut Vec<Credit>) {
        if let Ok(at) = self.find(path) {
            out.extend(self.list.remove(at).1.credits);
        }
    }

    /// Whether all branches of streams have answered.
    pub(super) fn has_streamed_all(&self) -> bool {
        self.list.len() <= 1
    }
}
