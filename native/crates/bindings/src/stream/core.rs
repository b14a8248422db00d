//! Streams of the core in this process.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use kushi_client::InferCall;
use kushi_core::{Alarm, Error, Mailbox, Reply, Window};
use kushi_server::Server;
use pyo3::prelude::*;

use super::{Arrived, Source, Stream};
use crate::calls::Arguments;
use crate::errors::{About, guarded, raise_about};
use crate::process::Process;
use crate::submission::{Beside, Submitted, submit_child};

pub(crate) fn begin(
    py: Python<'_>,
    server: &Server,
    process: Process,
    arguments: &Arguments<'_>,
) -> PyResult<Stream> {
    guarded(
        py,
        || arguments.about(),
        || {
            process.check("Engine").map_err(|error| raise_about(py, &error, &arguments.about()))?;
            let call = arguments.read()?;
            let about = About { model: call.model.clone(), request_id: call.id.clone() };
            submit(server, call, about.clone()).map_err(|error| raise_about(py, &error, &about))
        },
    )
}

fn submit(server: &Server, call: InferCall, about: About) -> Result<Stream, Error> {
    if let Some(output) = call.outputs.iter().find(|output| output.classes > 0) {
        let text =
            format!("output '{}': the classes of responses in a stream cannot be asked for", output.name);
        return Err(Error::invalid(text));
    }
    let arrived = Arc::new(Arrived::default());
    let mailbox: Arc<dyn Mailbox> = arrived.clone();
    let deadline = call.patience.and_then(|patience| Instant::now().checked_add(patience));
    let beside = Beside { deadline, streams: true, ..Beside::default() };
    let reply = || Reply::with_window(mailbox.clone(), 0, Window::default());
    let Submitted { spec, ticket, lease } = submit_child(server, call, beside, reply)?;
    if let Some(lease) = lease {
        server.drivers().offer(lease);
    }
    let alarm = Mutex::new(Alarm::of(&ticket));
    Ok(Stream::new(Source::Core { spec, ticket, alarm }, about, arrived))
}
