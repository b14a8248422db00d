//! `Core.infer` and `Core.async_infer`.

use kushi_core::{Alarm, OnlyResponse, Reply};
use kushi_server::Server;
use pyo3::prelude::*;

use crate::blocking;
use crate::calls::Arguments;
use crate::errors::{About, guarded, raise_about};
use crate::loops::EventLoop;
use crate::process::Process;
use crate::result::PyResultMapping;
use crate::submission::{Submitted, submit};
use crate::waiting::Hold;

pub(crate) fn infer(
    py: Python<'_>,
    server: &Server,
    process: Process,
    arguments: &Arguments<'_>,
) -> PyResult<PyResultMapping> {
    guarded(
        py,
        || arguments.about(),
        || {
            own(py, process, arguments)?;
            let call = arguments.read()?;
            let about = About { model: call.model.clone(), request_id: call.id.clone() };
            blocking::infer(py, server, call, &about).map(PyResultMapping::from)
        },
    )
}

/// A future of the running loop. What is wrong with the call is told by the future too.
pub(crate) fn async_infer<'py>(
    py: Python<'py>,
    server: &Server,
    process: Process,
    arguments: &Arguments<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    guarded(
        py,
        || arguments.about(),
        || {
            own(py, process, arguments)?;
            let event_loop = EventLoop::running(py)?;
            begin(py, server, &event_loop, arguments).or_else(|error| event_loop.failed(py, error))
        },
    )
}

fn own(py: Python<'_>, process: Process, arguments: &Arguments<'_>) -> PyResult<()> {
    process.check("Engine").map_err(|error| raise_about(py, &error, &arguments.about()))
}

fn begin<'py>(
    py: Python<'py>,
    server: &Server,
    event_loop: &EventLoop,
    arguments: &Arguments<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let call = arguments.read()?;
    let about = About { model: call.model.clone(), request_id: call.id.clone() };
    let key = event_loop.reserve();
    let submitted = submit(server, call, || Reply::new(event_loop.arrivals.clone(), key));
    let Submitted { spec, ticket, lease } = submitted.map_err(|error| {
        event_loop.release(key);
        raise_about(py, &error, &about)
    })?;
    if let Some(lease) = lease {
        server.drivers().offer(lease);
    }
    let alarm = Alarm::of(&ticket);
    let deadline = alarm.when();
    let hold = Hold::Core { ticket, spec, only: OnlyResponse::default(), alarm };
    event_loop.wait(py, key, hold, about, deadline)
}
