//! Whether a connection goes on: its client is asked now and then whether it is there, and it may grow too old.

use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use h2::{Ping, PingPong};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::line::Line;
use crate::options::KeepAlive;

/// What is left out of an age, or put on it, so that connections that began together do not end together.
const MOST_JITTER: f64 = 0.1;
/// As good as never: a timer that far away is none.
const NEVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// What a connection is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// Calls end, and none begins.
    Leave,
    /// At once.
    End,
}

pub(crate) struct KeepAliveTimer {
    keep_alive: KeepAlive,
    pings: Option<PingPong>,
    /// When the client is asked, or its answer is missing.
    alarm: Pin<Box<Sleep>>,
    is_asked: bool,
    /// When the connection has to leave, or to end.
    age: Option<Pin<Box<Sleep>>>,
    is_leaving: bool,
}

impl KeepAliveTimer {
    pub(crate) fn new(keep_alive: &KeepAlive, pings: Option<PingPong>) -> Self {
        let now = Instant::now();
        Self {
            keep_alive: *keep_alive,
            pings,
            alarm: Box::pin(sleep_until(now + keep_alive.time.min(NEVER))),
            is_asked: false,
            age: keep_alive.max_connection_age.map(|age| Box::pin(sleep_until(now + jittered(age)))),
            is_leaving: false,
        }
    }

    pub(crate) fn poll(&mut self, line: &Line, task: &mut Context<'_>) -> Poll<Told> {
        if let Some(told) = self.poll_age(task) {
            return Poll::Ready(told);
        }
        if let Some(pings) = &mut self.pings {
            // That anything came is noted elsewhere.
            while let Poll::Ready(Ok(_)) = pings.poll_pong(task) {}
        }
        while self.alarm.as_mut().poll(task).is_ready() {
            let heard = line.take_heard();
            if self.is_asked && !heard {
                log::debug!("a gRPC connection ended: its client does not answer");
                return Poll::Ready(Told::End);
            }
            self.is_asked = !heard && line.may_ping() && self.ping();
            let wait = if self.is_asked { self.keep_alive.timeout } else { self.keep_alive.time };
            self.alarm.as_mut().reset(Instant::now() + wait.min(NEVER));
        }
        Poll::Pending
    }

    fn ping(&mut self) -> bool {
        self.pings.as_mut().is_some_and(|pings| pings.send_ping(Ping::opaque()).is_ok())
    }

    fn poll_age(&mut self, task: &mut Context<'_>) -> Option<Told> {
        let age = self.age.as_mut()?;
        if age.as_mut().poll(task).is_pending() {
            return None;
        }
        if self.is_leaving {
            return Some(Told::End);
        }
        self.is_leaving = true;
        match self.keep_alive.max_connection_age_grace {
            Some(grace) => age.as_mut().reset(Instant::now() + grace.min(NEVER)),
            None => self.age = None,
        }
        Some(Told::Leave)
    }
}

fn jittered(age: Duration) -> Duration {
    let random = RandomState::new().hash_one(0) as f64 / u64::MAX as f64;
    age.min(NEVER).mul_f64(1.0 + MOST_JITTER * (2.0 * random - 1.0))
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::rc::Rc;

    use super::*;

    fn told(keep_alive: &KeepAlive, line: &Rc<Line>, count: usize) -> Vec<(Told, u64)> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.unwrap().block_on(async {
            let (began, mut timer) = (Instant::now(), KeepAliveTimer::new(keep_alive, None));
            let mut told = Vec::new();
            for _ in 0..count {
                let next = poll_fn(|task| timer.poll(line, task));
                if let Ok(next) = tokio::time::timeout(Duration::from_hours(24), next).await {
                    told.push((next, began.elapsed().as_secs()));
                }
            }
            told
        })
    }

    #[test]
    fn connections_leave_at_their_age_and_end_after_their_grace() {
        let keep_alive = KeepAlive {
            max_connection_age: Some(Duration::from_secs(1000)),
            max_connection_age_grace: Some(Duration::from_secs(10)),
            ..KeepAlive::default()
        };
        let line = Rc::new(Line::new(&keep_alive, false));
        let told = self::told(&keep_alive, &line, 2);
        let [(Told::Leave, left), (Told::End, ended)] = told[..] else { panic!("{told:?}") };
        assert!((900..=1100).contains(&left) && (10..=11).contains(&(ended - left)), "{left} {ended}");
        let forever = KeepAlive { max_connection_age_grace: None, ..keep_alive };
        assert_eq!(self::told(&forever, &line, 2).len(), 1);
    }

    #[test]
    fn nobody_is_asked_without_calls() {
        let line = Rc::new(Line::new(&KeepAlive::default(), false));
        assert_eq!(told(&KeepAlive::default(), &line, 1), []);
    }
}
