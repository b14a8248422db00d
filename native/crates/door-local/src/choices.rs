//! The choice of classes among large outputs, which is made on another thread.

use std::rc::Rc;

use kushi_core::{End, Error, ErrorKind, Inputs, ModelSpec, Response};
use kushi_net::{Budget, Sink};

use crate::requests::Ended;
use crate::tasks::Tasks;

/// Outputs of more bytes than this are not looked through while the other connections of the thread wait.
const LONG_CHOICE_BYTES: usize = 64 << 10;

/// Requests whose outputs are looked through; they end with their classes.
pub(super) type Choices = Tasks<Ended>;

/// Whether [`choose`] is for another thread.
pub(super) fn takes_long((response, end): &(Response, End)) -> bool {
    end.request.classes.bytes(response) > LONG_CHOICE_BYTES
}

/// Puts the classes that the request wants in the place of its outputs; the second time there is nothing to do.
pub(super) fn choose(spec: &ModelSpec, response: &mut Response, end: &mut End) -> Result<(), Error> {
    std::mem::take(&mut end.request.classes).choose(spec, response)
}

/// Where others hold all the memory that is allowed, the outputs are dropped, and this fails.
pub(super) fn begin(
    choices: &mut Choices,
    sink: &Rc<Sink>,
    budget: &Budget,
    id: u64,
    mut ended: Ended,
) -> Result<(), Error> {
    if let Ok((response, end)) = &mut ended.result {
        end.request.inputs = Inputs::default();
        // In the place of the inputs, which have gone.
        let bytes = response.outputs.iter().map(|(_, output)| output.data.len()).sum();
        ended.answering.owe_in_all(bytes);
        budget.check_owed(bytes)?;
    }
    choices.begin(sink, id, async move {
        let Ended { spec, result, mut answering } = ended;
        let (chooser, outputs) = (spec.clone(), answering.take_reservation());
        let chosen = tokio::task::spawn_blocking(move || {
            let (mut response, mut end) = result?;
            let chosen = choose(&chooser, &mut response, &mut end);
            drop(outputs);
            chosen.map(|()| (response, end))
        });
        let failed =
            |failure| Err(Error::new(ErrorKind::Internal, format!("the classes were not chosen: {failure}")));
        Ended { spec, result: chosen.await.unwrap_or_else(failed), answering }
    });
    Ok(())
}
