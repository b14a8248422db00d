//! Which models there are: read by every request without a lock, written by the control plane.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use arc_swap::{ArcSwap, ArcSwapOption};
use kushi_core::{AskedVersion, Error, ErrorKind, ModelSpec, Runner, State};
use rustc_hash::FxHashMap;

use crate::VersionRoutes;

#[derive(Default)]
pub struct Registry {
    /// Whoever owns the repository chooses the names in it: they need no hash that withstands a client's choice.
    models: ArcSwap<FxHashMap<String, Arc<Versions>>>,
    writing: Mutex<()>,
    /// How often the models have changed.
    generation: AtomicU64,
    /// The names that say for some model which of its versions gets a request. `None`: for no model.
    sticky: ArcSwapOption<Vec<String>>,
}

#[derive(Clone, Default)]
struct Versions {
    by_number: BTreeMap<u64, Version>,
    /// `None`: the model says nothing of its versions.
    routes: Option<Arc<VersionRoutes>>,
    /// Why the model as a whole has no version, if that is so.
    reason: Option<String>,
    /// What the index says of versions that serve; empty for nothing.
    note: String,
}

#[derive(Clone)]
enum Version {
    Loading,
    Serving(Arc<Runner>),
    Failed(String),
    /// Taken away; it may still finish what it began.
    Removed(Weak<Runner>),
    /// The same of one that is to come back, and why it went.
    Suspended(Weak<Runner>, String),
}

/// Triton's word for a version that was taken away.
const UNLOADED: &str = "unloaded";

/// One line of the repository index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionRow {
    pub model: String,
    /// `None`: the model failed before its versions were known.
    pub version: Option<u64>,
    pub state: State,
    pub reason: String,
}

impl Version {
    /// What takes requests; a draining one refuses them itself.
    fn runner(&self) -> Option<Arc<Runner>> {
        match self {
            Self::Serving(runner) if matches!(runner.state(), State::Ready | State::Draining) => {
                Some(runner.clone())
            }
            _ => None,
        }
    }

    fn state(&self) -> State {
        match self {
            Self::Loading => State::Loading,
            Self::Serving(runner) => runner.state(),
            Self::Failed(_) => State::Failed,
            Self::Removed(runner) | Self::Suspended(runner, _) => {
                match runner.upgrade().map(|runner| runner.state()) {
                    None | Some(State::Unloaded | State::Failed) => State::Unloaded,
                    Some(_) => State::Draining,
                }
            }
        }
    }

    /// What the repository index says beside the state.
    fn reason(&self) -> &str {
        match self {
            Self::Failed(reason) | Self::Suspended(_, reason) => reason,
            Self::Removed(_) if self.state() == State::Unloaded => UNLOADED,
            _ => "",
        }
    }

    fn remove(&mut self) {
        *self = match self {
            Self::Serving(runner) => Self::Removed(Arc::downgrade(runner)),
            Self::Removed(runner) | Self::Suspended(runner, _) => Self::Removed(runner.clone()),
            Self::Loading | Self::Failed(_) => Self::Removed(Weak::new()),
        };
    }
}

impl Registry {
    /// What is asked about; without a version the latest that is ready.
    pub fn find(&self, model: &str, version: &AskedVersion) -> Result<Arc<Runner>, Error> {
        self.route(model, version, |_| None)
    }

    /// The runner for a request. `choose` gives the version, where the model shares out requests that name none.
    pub fn route(
        &self,
        model: &str,
        version: &AskedVersion,
        mut choose: impl FnMut(&Arc<VersionRoutes>) -> Option<u64>,
    ) -> Result<Arc<Runner>, Error> {
        loop {
            let generation = self.generation();
            match self.look_up(model, version, &mut choose) {
                // What it found may have been replaced, and have ended, before it looked at its state.
                Err(_) if generation != self.generation() => {}
                found => return found,
            }
        }
    }

    /// `None`: no version is asked for. Fails where a label is none of the model's.
    pub(crate) fn number(&self, model: &str, version: &AskedVersion) -> Result<Option<u64>, Error> {
        match version {
            AskedVersion::Any => Ok(None),
            AskedVersion::Number(number) => Ok(Some(*number)),
            AskedVersion::Label(label) => {
                let models = self.models.load();
                let routes = models.get(model).and_then(|versions| versions.routes.as_ref());
                labelled(label, model, routes).map(Some)
            }
        }
    }

    fn look_up(
        &self,
        model: &str,
        version: &AskedVersion,
        choose: impl FnMut(&Arc<VersionRoutes>) -> Option<u64>,
    ) -> Result<Arc<Runner>, Error> {
        let models = self.models.load();
        let unknown = |what: String| {
            Error::new(ErrorKind::ModelNotFound, format!("Request for unknown model: '{model}'{what}"))
        };
        let found = models.get(model);
        let routes = found.and_then(|versions| versions.routes.as_ref());
        let number = match version {
            AskedVersion::Any => routes.filter(|routes| routes.has_shares()).and_then(choose),
            AskedVersion::Number(number) => Some(*number),
            AskedVersion::Label(label) => Some(labelled(label, model, routes)?),
        };
        let versions = found.ok_or_else(|| unknown(" is not found".into()))?;
        let Some(number) = number else {
            let latest_first = || versions.by_number.values().rev().filter_map(Version::runner);
            let latest = latest_first().find(|runner| runner.state() == State::Ready);
            return latest
                .or_else(|| latest_first().next())
                .ok_or_else(|| unknown(" has no available versions".into()));
        };
        let version = versions.by_number.get(&number);
        let version = version.ok_or_else(|| unknown(format!(" version {number} is not found")))?;
        version.runner().ok_or_else(|| {
            let text = format!("Request for unknown model: '{model}' version {number} is not at ready state");
            let kind = match version {
                Version::Failed(_) | Version::Removed(_) | Version::Suspended(..) => {
                    ErrorKind::ModelUnavailable
                }
                Version::Loading | Version::Serving(_) => ErrorKind::ModelNotReady,
            };
            Error::new(kind, text)
        })
    }

    /// Where a request goes on that `runner` refused because a reload or an unload took its place.
    /// `None`: it refused for a reason of its own.
    pub(crate) fn moved(
        &self,
        runner: &Arc<Runner>,
        version: &AskedVersion,
        choose: impl FnMut(&Arc<VersionRoutes>) -> Option<u64>,
    ) -> Option<Result<Arc<Runner>, Error>> {
        let ModelSpec { name, version: number, .. } = &**runner.spec();
        let models = self.models.load();
        let in_its_place = models.get(name).and_then(|versions| versions.by_number.get(number));
        // A server that closes retires its runners where they are.
        let still_there = matches!(in_its_place, Some(Version::Serving(found)) if Arc::ptr_eq(found, runner));
        (!still_there).then(|| self.route(name, version, choose))
    }

    /// Another number once the models have changed. What is found after a look at it may be newer than it says.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The names of headers that say for some model which of its versions gets a request. `None`: for no model.
    pub fn sticky(&self) -> Option<Arc<Vec<String>>> {
        self.sticky.load_full()
    }

    /// Whether a version of the model may be asked for by a name.
    pub fn has_labels(&self, model: &str) -> bool {
        let models = self.models.load();
        let routes = models.get(model).and_then(|versions| versions.routes.as_ref());
        routes.is_some_and(|routes| routes.has_labels())
    }

    /// Every runner that serves.
    pub fn runners(&self) -> Vec<Arc<Runner>> {
        let models = self.models.load();
        let mut names: Vec<_> = models.iter().collect();
        names.sort_by_key(|(name, _)| name.as_str());
        names
            .into_iter()
            .flat_map(|(_, versions)| versions.by_number.values())
            .filter_map(|version| match version {
                Version::Serving(runner) => Some(runner.clone()),
                _ => None,
            })
            .collect()
    }

    pub fn rows(&self) -> Vec<VersionRow> {
        let models = self.models.load();
        let mut rows = Vec::new();
        for (name, versions) in models.iter() {
            if let Some(reason) = &versions.reason {
                let (model, reason) = (name.clone(), reason.clone());
                rows.push(VersionRow { model, version: None, state: State::Failed, reason });
            }
            for (&number, version) in &versions.by_number {
                let reason = match version {
                    Version::Serving(_) => versions.note.clone(),
                    _ => version.reason().into(),
                };
                let state = version.state();
                rows.push(VersionRow { model: name.clone(), version: Some(number), state, reason });
            }
        }
        rows.sort_by(|a, b| (&a.model, a.version).cmp(&(&b.model, b.version)));
        rows
    }

    /// Whether every model that should serve does.
    pub fn all_ready(&self) -> bool {
        let is_well = |version: &Version| match version {
            Version::Serving(runner) => runner.is_ready(),
            _ => version.state() == State::Unloaded,
        };
        let models = self.models.load();
        models.values().all(|model| model.reason.is_none() && model.by_number.values().all(is_well))
    }

    /// Names a version that is on its way; one that serves goes on serving.
    pub fn announce(&self, model: &str, version: u64) {
        self.change(model, |versions| {
            versions.reason = None;
            let known = versions.by_number.entry(version).or_insert(Version::Loading);
            if matches!(known, Version::Failed(_) | Version::Removed(_) | Version::Suspended(..)) {
                *known = Version::Loading;
            }
        });
    }

    /// Puts these versions in the place of all that the model had, in one step. The replaced runners
    /// finish what they began; the caller retires them.
    #[must_use = "the replaced runners must be retired"]
    pub fn publish(&self, model: &str, runners: Vec<Arc<Runner>>) -> Vec<Arc<Runner>> {
        self.publish_beside(model, runners, &[], None)
    }

    /// The same, but for the versions that are `kept` as they are; and how requests find them.
    #[must_use = "the replaced runners must be retired"]
    pub fn publish_beside(
        &self,
        model: &str,
        runners: Vec<Arc<Runner>>,
        kept: &[u64],
        routes: Option<VersionRoutes>,
    ) -> Vec<Arc<Runner>> {
        self.change(model, |versions| {
            let replaced = versions.take(kept);
            versions.routes = routes.map(Arc::new);
            for runner in runners {
                versions.by_number.insert(runner.spec().version, Version::Serving(runner));
            }
            replaced
        })
    }

    /// Records that a version, or the whole model, could not be loaded. What serves goes on serving.
    pub fn fail(&self, model: &str, version: Option<u64>, reason: &str) {
        self.change(model, |versions| match version {
            None => versions.fail(reason),
            Some(number) => {
                let version = versions.by_number.entry(number).or_insert(Version::Loading);
                if !matches!(version, Version::Serving(_)) {
                    *version = Version::Failed(reason.into());
                }
            }
        });
    }

    /// What the index says of the versions of a model that serve, beside their state; an empty one takes it back.
    pub fn note(&self, model: &str, note: &str) {
        if self.models.load().contains_key(model) {
            self.change(model, |versions| versions.note = note.into());
        }
    }

    /// Says of a version that was taken away that it comes back, and why it went. It is not missed meanwhile.
    pub fn suspend(&self, model: &str, version: u64, reason: &str) {
        self.change(model, |versions| {
            if let Some(known) = versions.by_number.get_mut(&version)
                && let Version::Removed(runner) = known
            {
                *known = Version::Suspended(runner.clone(), reason.into());
            }
        });
    }

    /// A load has failed: what it announced and what did not fail itself does not come.
    pub fn withdraw(&self, model: &str) {
        self.change(model, |versions| {
            let coming = |version: &&mut Version| matches!(version, Version::Loading);
            versions.by_number.values_mut().filter(coming).for_each(Version::remove);
        });
    }

    /// Takes all versions of a model away; the caller retires the runners. The model is remembered as
    /// unloaded.
    #[must_use = "the removed runners must be retired"]
    pub fn remove(&self, model: &str) -> Vec<Arc<Runner>> {
        if !self.models.load().contains_key(model) {
            return Vec::new();
        }
        self.change(model, |versions| {
            versions.routes = None;
            versions.take(&[])
        })
    }

    fn change<T>(&self, model: &str, change: impl FnOnce(&mut Versions) -> T) -> T {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut models = FxHashMap::clone(&self.models.load());
        let mut versions = models.get(model).map(|versions| Versions::clone(versions)).unwrap_or_default();
        let changed = change(&mut versions);
        models.insert(model.into(), Arc::new(versions));
        self.sticky.store(sticky_names(&models));
        self.models.store(Arc::new(models));
        self.generation.fetch_add(1, Ordering::Release);
        changed
    }
}

fn sticky_names(models: &FxHashMap<String, Arc<Versions>>) -> Option<Arc<Vec<String>>> {
    let routes = models.values().filter_map(|versions| versions.routes.as_ref());
    let names: BTreeSet<&str> = routes.filter_map(|routes| routes.sticky()).collect();
    (!names.is_empty()).then(|| Arc::new(names.into_iter().map(str::to_owned).collect()))
}

fn labelled(label: &str, model: &str, routes: Option<&Arc<VersionRoutes>>) -> Result<u64, Error> {
    if let Some(version) = routes.and_then(|routes| routes.label(label)) {
        return Ok(version);
    }
    let labels = routes.map(|routes| routes.labels()).unwrap_or_default();
    if labels.is_empty() {
        return Err(AskedVersion::no_number(label));
    }
    let text =
        format!("model '{model}' has no version '{label}': expected a number or one of its labels, {labels}");
    Err(Error::new(ErrorKind::ModelNotFound, text))
}

impl Versions {
    /// None is on its way any more. Where none serves, the index says why.
    fn fail(&mut self, reason: &str) {
        self.by_number.retain(|_, version| !matches!(version, Version::Loading));
        if self.by_number.values().any(|version| matches!(version, Version::Serving(_))) {
            return;
        }
        for version in self.by_number.values_mut().filter(|version| version.state() != State::Draining) {
            *version = Version::Failed(reason.into());
        }
        let is_said = self.by_number.values().any(|version| matches!(version, Version::Failed(_)));
        self.reason = (!is_said).then(|| reason.into());
    }

    /// Marks every version as removed that is not `kept`, and answers those that served.
    fn take(&mut self, kept: &[u64]) -> Vec<Arc<Runner>> {
        self.reason = None;
        let mut taken = Vec::new();
        for (_, version) in self.by_number.iter_mut().filter(|(number, _)| !kept.contains(number)) {
            if let Version::Serving(runner) = version {
                taken.push(runner.clone());
            }
            version.remove();
        }
        taken
    }
}
