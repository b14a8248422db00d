//! Everything but inference: requests of the HTTP door's, by their routes.

use std::rc::Rc;

use bytes::Bytes;
use kushi_core::{Error, ErrorKind};
use kushi_net::{Answering, Sink};
use kushi_oip::manage::{self, Reply};
use kushi_oip::{Call, CallAnswer, MAX_BODY_BYTES};
use prost::Message;

use crate::LocalContext;
use crate::Violation;
use crate::tasks::Tasks;

const MOST_CALLS: usize = 64;

/// What an answer needs beside its body, and more.
const OVERHEAD_BYTES: usize = 64;

/// Some wait for the control plane.
pub(super) type Calls = Tasks<(CallAnswer, Answering)>;

/// Begins a call; `sink` is woken when its answer is there.
pub(super) fn begin(
    calls: &mut Calls,
    context: &LocalContext,
    sink: &Rc<Sink>,
    id: u64,
    body: Bytes,
) -> Result<(), Violation> {
    let Call { method, path, body } =
        Call::decode(body).map_err(|error| Violation(format!("a call that cannot be read: {error}")))?;
    let (plane, net) = (context.plane.clone(), context.io.net.clone());
    let answering = net.begin_answer();
    let full = calls.len() >= MOST_CALLS;
    calls.begin(sink, id, async move {
        let reply = if full {
            let text = format!("{MOST_CALLS} calls of this connection have not been answered yet");
            Reply::error(&Error::new(ErrorKind::Overloaded, text))
        } else {
            manage::call(&plane, net.budget.held(), &method, &path, body).await
        };
        (answer(reply), answering)
    });
    Ok(())
}

fn answer(mut reply: Reply) -> CallAnswer {
    let bytes = reply.body.len();
    if bytes + OVERHEAD_BYTES > MAX_BODY_BYTES {
        let text = format!("an answer of {bytes} bytes, at most {MAX_BODY_BYTES} travel in a frame");
        reply = Reply::error(&Error::new(ErrorKind::Unsupported, text));
    }
    let kind = reply.kind.map_or("", ErrorKind::name).into();
    CallAnswer { status: reply.status.into(), body: reply.body, kind }
}
