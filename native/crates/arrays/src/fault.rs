//! Why something is no tensor.

use pyo3::exceptions::PyException;
use pyo3::prelude::*;

#[derive(Debug)]
pub enum Fault {
    /// The words of an error message behind its subject: "has dtype complex64, expected …".
    Refused(String),
    /// The conversion by somebody else's code raised an error.
    Unreadable(PyErr),
    /// What is no error of a value and goes on its way: a `KeyboardInterrupt`, say.
    Raised(PyErr),
}

impl Fault {
    /// What the conversion by somebody else's code raised.
    pub(crate) fn met(py: Python<'_>, error: PyErr) -> Self {
        if error.is_instance_of::<PyException>(py) { Self::Unreadable(error) } else { Self::Raised(error) }
    }

    /// The words of a message about an error of somebody else's code.
    pub fn unreadable(error: &PyErr) -> String {
        format!("cannot be read as an array: {error}")
    }
}

impl From<PyErr> for Fault {
    fn from(error: PyErr) -> Self {
        Self::Raised(error)
    }
}
