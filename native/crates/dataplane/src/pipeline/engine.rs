//! What runs an ensemble: an engine that keeps its slot for no longer than it takes to hand the first steps in.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arc_swap::ArcSwapOption;
use kushi_core::{
    Afterwards, Batch, Capability, Engine, Error, ErrorKind, FollowUp, Mail, Mailbox, ModelSpec, OnReady,
    Readiness, Request, Runner, Slot, SlotToken, ask_each,
};
use slotmap::{DefaultKey, Key, KeyData, SlotMap};

use super::Graph;
use super::beside::JobQueue;
use super::plan::Plan;
use super::run::Run;
use crate::Registry;

/// Ends its runs when it is dropped.
pub(crate) struct Ensemble(Arc<Pipeline>);

pub(super) struct Pipeline {
    me: Weak<Self>,
    pub(super) spec: Arc<ModelSpec>,
    pub(super) graph: Graph,
    registry: Weak<Registry>,
    /// Kept though a model of it has gone, until the next request looks.
    plan: ArcSwapOption<Plan>,
    /// By the keys of their steps.
    runs: Mutex<SlotMap<DefaultKey, Arc<Run>>>,
    /// Steps that have given an answer and have not ended: all their mail is taken by one thread, in its order.
    streams: Mutex<HashSet<u64>>,
    open_streams: AtomicUsize,
    pub(super) jobs: Arc<JobQueue>,
}

impl Ensemble {
    pub(crate) fn new(spec: &ModelSpec, graph: Graph, registry: &Arc<Registry>, jobs: Arc<JobQueue>) -> Self {
        Self(Arc::new_cyclic(|me| Pipeline {
            me: me.clone(),
            spec: Arc::new(spec.clone()),
            graph,
            registry: Arc::downgrade(registry),
            plan: ArcSwapOption::default(),
            runs: Mutex::default(),
            streams: Mutex::default(),
            open_streams: AtomicUsize::default(),
            jobs,
        }))
    }
}

impl Engine for Ensemble {
    fn capability(&self) -> Capability {
        Capability { concurrent: true, inline: false, keeps_slots: true }
    }

    fn readiness(&self) -> Option<Arc<dyn Readiness>> {
        Some(Arc::new(OfSteps(Arc::downgrade(&self.0))))
    }

    fn execute(&self, _slot: &mut Slot, batch: Batch) {
        for request in batch.take_apart() {
            Run::begin(&self.0, request);
        }
    }

    fn begin(&self, mut slot: SlotToken, batch: Batch) {
        self.execute(&mut slot, batch);
    }
}

impl Drop for Ensemble {
    fn drop(&mut self) {
        let runs: Vec<_> = self.0.runs().values().cloned().collect();
        for run in runs {
            let text = format!("ensemble '{}' is being stopped", self.0.spec.name);
            run.give_up(&self.0, Error::new(ErrorKind::ShuttingDown, text));
        }
    }
}

/// Whether the models of all steps are ready.
struct OfSteps(Weak<Pipeline>);

impl OfSteps {
    fn plan(&self) -> Option<Arc<Plan>> {
        self.0.upgrade()?.plan().ok()
    }
}

impl Readiness for OfSteps {
    fn is_ready(&self) -> bool {
        self.plan().is_some_and(|plan| plan.runners.iter().all(|runner| runner.is_ready()))
    }

    fn ask(&self, on_answer: OnReady) {
        match self.plan() {
            Some(plan) => {
                let ask = |runner: &Arc<Runner>, on_answer| runner.ask_ready(on_answer);
                ask_each(plan.runners.iter(), ask, false, on_answer);
            }
            None => on_answer(false),
        }
    }
}

impl Pipeline {
    /// The models of the steps as they are now.
    pub(super) fn plan(&self) -> Result<Arc<Plan>, Error> {
        if let Some(plan) = &*self.plan.load()
            && self.is_current(plan)
        {
            return Ok(plan.clone());
        }
        let gone = || Error::new(ErrorKind::ShuttingDown, "the engine is closed");
        let registry = self.registry.upgrade().ok_or_else(gone)?;
        let plan = Arc::new(Plan::find(&self.graph, &registry)?);
        self.plan.store(Some(plan.clone()));
        Ok(plan)
    }

    /// The same for one request: where versions of a model share its requests, it has one of them.
    pub(super) fn plan_for(&self, request: Option<&Request>) -> Result<Arc<Plan>, Error> {
        loop {
            let plan = self.plan()?;
            let (Some(request), false) = (request, plan.shared.is_empty()) else { return Ok(plan) };
            let Some(registry) = self.registry.upgrade() else { return Ok(plan) };
            match plan.variant(&self.graph, &registry, request) {
                // A reload may have taken a version away meanwhile.
                Err(_) if !self.is_current(&plan) => {}
                variant => return variant,
            }
        }
    }

    /// Whether no model has come or gone since these were found.
    pub(super) fn is_current(&self, plan: &Plan) -> bool {
        self.registry.upgrade().is_none_or(|registry| registry.generation() == plan.generation)
    }

    pub(super) fn mailbox(&self) -> Arc<dyn Mailbox> {
        self.me.upgrade().expect("whoever calls it holds it")
    }

    /// A key for a step of this run.
    pub(super) fn enter(&self, run: &Arc<Run>) -> u64 {
        self.runs().insert(run.clone()).data().as_ffi()
    }

    pub(super) fn leave(&self, key: u64) {
        self.runs().remove(KeyData::from_ffi(key).into());
    }

    fn runs(&self) -> MutexGuard<'_, SlotMap<DefaultKey, Arc<Run>>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this mail is part of a stream.
    fn is_of_stream(&self, mail: &Mail) -> bool {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let is_open = match &mail.end {
            Some(_) => streams.remove(&mail.key),
            None => {
                streams.insert(mail.key);
                true
            }
        };
        self.open_streams.store(streams.len(), Ordering::Release);
        is_open
    }

    fn follow_beside(self: Arc<Self>, mail: Vec<Mail>) {
        let jobs = self.jobs.clone();
        jobs.push(move || self.follow(mail));
    }
}

impl Mailbox for Pipeline {
    fn deliver(&self, mail: Vec<Mail>) {
        let Some(me) = self.me.upgrade() else { return };
        let has_streams = self.open_streams.load(Ordering::Acquire) > 0;
        let mail = if has_streams || mail.iter().any(|mail| mail.credit.is_some()) {
            let is_of_stream = |mail: &Mail| self.is_of_stream(mail);
            let (of_streams, mail): (Vec<_>, Vec<_>) = mail.into_iter().partition(is_of_stream);
            if !of_streams.is_empty() {
                me.clone().follow_beside(of_streams);
            }
            mail
        } else {
            mail
        };
        if mail.is_empty() {
            return;
        }
        let who: Arc<dyn FollowUp> = me.clone();
        if let Err(mail) = Afterwards::follow(&who, mail) {
            me.follow_beside(mail);
        }
    }
}

impl FollowUp for Pipeline {
    fn follow(&self, mail: Vec<Mail>) {
        let Some(me) = self.me.upgrade() else { return };
        for mail in mail {
            let key = KeyData::from_ffi(mail.key).into();
            let run =
                if mail.end.is_some() { self.runs().remove(key) } else { self.runs().get(key).cloned() };
            if let Some(run) = run {
                run.take(&me, mail);
            }
        }
    }
}
