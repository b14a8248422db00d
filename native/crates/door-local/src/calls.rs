//! Everything but inference: verbs of the data plane, by their names.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use kushi_core::{Error, ErrorKind};
use kushi_dataplane::{DataPlane, VerbAnswer, unanswered};
use kushi_net::{Answering, Sink, answered};
use kushi_oip::{Call, CallAnswer, MAX_BODY_BYTES};
use kushi_verbs as verbs;
use prost::Message;

use crate::LocalContext;
use crate::Violation;
use crate::tasks::Tasks;

const MOST_CALLS: usize = 64;

/// The one that may bring more than names and a few settings.
const LOADS: &str = "RepositoryModelLoad";

/// What takes longer to be read than others may wait.
const LONG_BYTES: usize = 256 << 10;

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
    let call =
        Call::decode(body).map_err(|error| Violation(format!("a call that cannot be read: {error}")))?;
    let plane = context.plane.clone();
    let answering = context.io.net.begin_answer();
    let full = calls.len() >= MOST_CALLS;
    calls.begin(sink, id, async move {
        let answer = if full {
            let text = format!("{MOST_CALLS} calls of this connection have not been answered yet");
            Err(Error::new(ErrorKind::Overloaded, text))
        } else {
            perform(&plane, call).await
        };
        (framed(&answer), answering)
    });
    Ok(())
}

async fn perform(plane: &Arc<DataPlane>, call: Call) -> Result<VerbAnswer, Error> {
    if call.arguments.len() > verbs::MOST_BYTES && call.verb != LOADS {
        let (given, most) = (call.arguments.len(), verbs::MOST_BYTES);
        return Err(Error::invalid(format!(
            "arguments of {given} bytes for '{}', at most {most} are allowed",
            call.verb
        )));
    }
    let verb = if call.arguments.len() > LONG_BYTES {
        let read = move || verbs::verb(&call.verb, &call.arguments);
        tokio::task::spawn_blocking(read).await.map_err(|_| unanswered())??
    } else {
        verbs::verb(&call.verb, &call.arguments)?
    };
    answered(|on_answer| plane.perform(verb, on_answer)).await.unwrap_or_else(|| Err(unanswered()))
}

fn framed(answer: &Result<VerbAnswer, Error>) -> CallAnswer {
    let answer = verbs::call_answer(answer);
    let bytes = answer.body.len();
    if bytes + OVERHEAD_BYTES <= MAX_BODY_BYTES {
        return answer;
    }
    let text = format!("an answer of {bytes} bytes, at most {MAX_BODY_BYTES} travel in a frame");
    verbs::call_answer(&Err(Error::new(ErrorKind::Unsupported, text)))
}
