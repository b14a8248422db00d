//! Python's exceptions as errors of the engine.

use kushi_core::{Error, ErrorKind};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTracebackMethods;

/// Whether the data of a request may be the reason, of an exit or an interrupt too: not where the exception has an
/// attribute `of_data` that is false.
pub(crate) fn may_be_of_data(py: Python<'_>, error: &PyErr) -> bool {
    let denied = error.value(py).getattr_opt(intern!(py, "of_data")).ok().flatten();
    denied.is_none_or(|of_data| of_data.is_truthy().unwrap_or(false))
}

/// Any exception, an exit or an interrupt too: they end a batch, and not the thread that met them.
pub(crate) fn described(py: Python<'_>, error: &PyErr, model: &str) -> Error {
    let class = error.get_type(py);
    let value = error.value(py);
    let kind = value.getattr(intern!(py, "kind")).and_then(|kind| kind.extract::<String>()).ok();
    let kind = [ErrorKind::EngineFailed, ErrorKind::InvalidInput]
        .into_iter()
        .find(|own| kind.as_deref() == Some(own.name()));
    let value = value.str().map(|text| text.to_string_lossy().into_owned());
    let name = class.fully_qualified_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.unwrap_or_else(|_| "an exception".into());
    let text = match value {
        // The control plane's own exception.
        Ok(text) if kind.is_some() => text,
        Ok(text) if text.is_empty() => format!("model '{model}' raised {name}"),
        Ok(text) => format!("model '{model}' raised {name}: {text}"),
        Err(_) => format!("model '{model}' raised {name}, which cannot be printed"),
    };
    if log::log_enabled!(log::Level::Debug) {
        let trace = error.traceback(py).and_then(|trace| trace.format().ok());
        log::debug!("{text}\n{}", trace.unwrap_or_default());
    }
    Error::new(kind.unwrap_or(ErrorKind::EngineFailed), text)
}
