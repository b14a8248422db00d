//! Wakes a connection when the first of its requests expires.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use tokio::time::Sleep;

#[derive(Default)]
pub(super) struct Alarm(Option<Timer>);

struct Timer {
    sleep: Pin<Box<Sleep>>,
    until: Instant,
}

impl Alarm {
    /// Ready when `when` has come, or a time that was asked for earlier: look again then.
    pub(super) fn poll(&mut self, when: Instant, context: &mut Context<'_>) -> Poll<()> {
        let timer = match &mut self.0 {
            Some(timer) if timer.until <= when => timer,
            Some(timer) => {
                timer.sleep.as_mut().reset(when.into());
                timer.until = when;
                timer
            }
            None => {
                let sleep = Box::pin(tokio::time::sleep_until(when.into()));
                self.0.insert(Timer { sleep, until: when })
            }
        };
        ready!(timer.sleep.as_mut().poll(context));
        self.0 = None;
        Poll::Ready(())
    }
}
