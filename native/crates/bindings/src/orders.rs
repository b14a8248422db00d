//! Orders to load and unload models, as the control plane takes them.

use std::sync::{Arc, Mutex};

use kushi_core::{Error, ErrorKind};
use kushi_engine_python::exit;
use kushi_server::{Action, Asker};
use pyo3::prelude::*;

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
        let loads = order.action == Action::Load;
        let dependents = order.dependents;
        let by_model = order.asker == Asker::Model;
        let model = order.model.clone();
        Some(Order { loads, dependents, by_model, model, unanswered: Mutex::new(Some(order)) })
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
