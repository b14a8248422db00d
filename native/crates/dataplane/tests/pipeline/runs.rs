//! A pipeline of two models, as small as it can be, and its runs for one asker.
//!
//! Lives on the asker's thread. It owns no threads, holds no locks and is never called by a mailbox.

use std::collections::HashMap;
use std::sync::Arc;

use kushi_core::{
    Admission, Classes, Context, Credit, End, Error, Lease, Mail, Mailbox, Reply, Request, Response, Runner,
    Tensor, Ticket, Window,
};

/// What the last step gave, or why there is nothing, by the key of the run.
pub type Outcome = (u64, Result<Tensor, Error>);

pub struct Runs {
    steps: [Arc<Runner>; 2],
    mailbox: Arc<dyn Mailbox>,
    /// Of answers of the first step that the second has not finished with.
    pub window: Window,
    inside: HashMap<u64, Run>,
    next_number: u64,
}

struct Run {
    /// The key that the asker knows.
    key: u64,
    context: Context,
    step: usize,
    ticket: Ticket,
    /// Of the answer that this step has begun with.
    _credit: Option<Credit>,
}

impl Runs {
    pub fn new(steps: [Arc<Runner>; 2], mailbox: Arc<dyn Mailbox>) -> Self {
        Self { steps, mailbox, window: Window::default(), inside: HashMap::new(), next_number: 0 }
    }

    /// Pins both steps: a drain of them waits for this run from now on.
    pub fn begin(&mut self, key: u64, input: Tensor) -> Result<Option<Lease>, Error> {
        let context = Context::pinning(&self.steps)?;
        self.begin_step(0, key, input, context, None)
    }

    fn begin_step(
        &mut self,
        step: usize,
        key: u64,
        input: Tensor,
        context: Context,
        credit: Option<Credit>,
    ) -> Result<Option<Lease>, Error> {
        let runner = &self.steps[step];
        let number = self.next_number;
        self.next_number += 1;
        let request = Request {
            id: String::new(),
            inputs: [Some(input)].into_iter().collect(),
            wanted: [].into_iter().collect(),
            classes: Classes::default(),
            rows: 1,
            parameters: vec![],
            priority: 0,
            timeout_us: None,
            deadline: None,
            arrived: runner.now(),
            context: context.clone(),
            reply: Reply::with_window(self.mailbox.clone(), number, self.window),
        };
        let (ticket, admission) = runner.submit(request).map_err(|(error, _)| error)?;
        self.inside.insert(number, Run { key, context, step, ticket, _credit: credit });
        Ok(match admission {
            Admission::Lead(lease) => Some(lease),
            Admission::Queued => None,
        })
    }

    /// What follows from mail. All of it enters the next queue before anyone leads.
    pub fn go_on(&mut self, mail: Vec<Mail>) -> (Vec<Outcome>, Vec<Lease>) {
        let (mut outcomes, mut leases) = (Vec::new(), Vec::new());
        for Mail { key: number, response, end, credit } in mail {
            let Some(run) = self.inside.get(&number) else { continue };
            let (key, step, context) = (run.key, run.step, run.context.clone());
            let failed = end.as_ref().and_then(|End { result, .. }| result.clone().err());
            let output =
                response.and_then(|Response { mut outputs }| outputs.pop().map(|(_, tensor)| tensor));
            if end.is_some() {
                self.inside.remove(&number);
            }
            match (failed, output) {
                (Some(error), _) => outcomes.push((key, Err(error))),
                (None, Some(output)) if step == 1 => outcomes.push((key, Ok(output))),
                (None, Some(output)) => match self.begin_step(1, key, output, context, credit) {
                    Ok(lease) => leases.extend(lease),
                    Err(error) => outcomes.push((key, Err(error))),
                },
                (None, None) => {}
            }
        }
        (outcomes, leases)
    }

    /// Nobody waits for this run any more: the step that it is at is given up.
    pub fn cancel(&self, key: u64) {
        for run in self.inside.values().filter(|run| run.key == key) {
            run.ticket.cancel();
        }
    }

    pub fn inside(&self) -> usize {
        self.inside.len()
    }
}
