//! Orders to load and unload models, as the control plane takes them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use kushi_core::{Error, ErrorKind};
use kushi_engine_python::exit;
use kushi_server::{Action, Asker, Overrides};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::locks::lock;

/// Outlives the core that it belongs to, and then has no more orders.
#[pyclass(frozen, module = "kushi_native")]
pub(crate) struct Orders(pub(crate) Arc<kushi_server::Orders>);

#[pymethods]
impl Orders {
    /// Sleeps until there is an order, or an urgent one; `None` once the server closes, which it does before the
    /// interpreter goes.
    #[pyo3(signature = (*, only_urgent = false))]
    fn next(&self, py: Python<'_>, only_urgent: bool) -> Option<Order> {
        let order = exit::detached_shortly(py, || self.0.next(only_urgent))?;
        let by_model = order.asker == Asker::Model;
        let model = order.model.clone();
        let (loads, dependents, overrides) = match &order.action {
            Action::Load(overrides) => (true, false, overrides.clone()),
            Action::Unload { dependents } => (false, *dependents, Overrides::default()),
        };
        let Overrides { config, files, versions } = overrides;
        let files = files.into_iter().map(|(path, content)| (path, PyBytes::new(py, &content).unbind()));
        let files = files.collect();
        let unanswered = Mutex::new(Some(order));
        Some(Order { loads, dependents, config, files, versions, by_model, model, unanswered })
    }

    fn close(&self, py: Python<'_>) {
        exit::detached_shortly(py, || self.0.close());
    }
}

/// Dropped unanswered it answers with an error; only the first answer counts.
#[pyclass(frozen, module = "kushi_native")]
pub(crate) struct Order {
    /// Whether the model is to be loaded, or else unloaded.
    #[pyo3(get)]
    loads: bool,
    /// Whether the models of an ensemble are to be unloaded with it.
    #[pyo3(get)]
    dependents: bool,
    /// What takes the place of the model's configuration, in JSON.
    #[pyo3(get)]
    config: Option<String>,
    /// What takes the place of its directory.
    #[pyo3(get)]
    files: HashMap<String, Py<PyBytes>>,
    /// How requests are to find its versions, in JSON; nothing else changes then.
    #[pyo3(get)]
    versions: Option<String>,
    /// Whether a model asks, perhaps while it is loaded itself.
    #[pyo3(get)]
    by_model: bool,
    #[pyo3(get)]
    model: String,
    unanswered: Mutex<Option<kushi_server::Order>>,
}

#[pymethods]
impl Order {
    fn done(&self) {
        self.answer(&Ok(()));
    }

    /// `status` tells kinds of the same name apart.
    fn fail(&self, kind: &str, status: u16, message: String) {
        let kind = ErrorKind::find(kind, status).unwrap_or(ErrorKind::Internal);
        self.answer(&Err(Error::new(kind, message)));
    }
}

impl Order {
    fn answer(&self, result: &Result<(), Error>) {
        let order = lock(&self.unanswered).take();
        if let Some(order) = order {
            order.answer(result);
        }
    }
}
