//! Sleepers with an alarm. In loom no time passes; these wait for the state itself.

use std::sync::PoisonError;
use std::thread;
use std::time::Duration;

use super::*;

/// Something to do from this time on.
struct DueFrom(Option<Instant>);

impl Work for DueFrom {
    fn due(&self, now: Instant, _free: &FreeSlots) -> Due {
        match self.0 {
            Some(when) if when > now => Due::Later(when),
            Some(_) => Due::Any { whole_batch: false },
            None => Due::Nothing,
        }
    }
}

impl Indexed for u8 {
    fn index(&self) -> usize {
        usize::from(*self)
    }
}

#[test]
fn a_sleeper_sets_its_alarm_for_every_delay_and_takes_the_work_when_it_rings() {
    let clock = std::sync::Mutex::new(Instant::now());
    let now = || *clock.lock().unwrap_or_else(PoisonError::into_inner);
    let state = Handover::new(DueFrom(None), vec![0_u8]);
    thread::scope(|scope| {
        for _ in 0..3 {
            let sleeper = scope.spawn(|| state.wait(0, now));
            let when = now() + Duration::from_millis(2);
            let admitted = state.admit(now(), |work| {
                work.0 = Some(when);
                Ok::<_, ()>(())
            });
            assert_eq!(admitted, Ok(((), None)));
            let patience = Instant::now() + Duration::from_secs(30);
            while lock(&state.state).alarm != Some(when) {
                assert!(!sleeper.is_finished(), "it left before its time");
                assert!(Instant::now() < patience, "no alarm is set");
                thread::yield_now();
            }
            *clock.lock().unwrap_or_else(PoisonError::into_inner) = when;
            let slot = sleeper.join().ok().flatten();
            assert_eq!(slot, Some(0));
            assert!(lock(&state.state).alarm.is_none());
            state.with(|work| work.0 = None);
            state.give_back(0, now());
        }
    });
}

/// Work for a slot that is not free, and for one that there is not.
struct DueForAnother(usize);

impl Work for DueForAnother {
    fn due(&self, _now: Instant, _free: &FreeSlots) -> Due {
        Due::Only(self.0)
    }
}

#[test]
fn work_for_a_slot_that_is_not_free_sends_no_thread_away() {
    for named in [1, 2] {
        let state = Handover::new(DueForAnother(named), vec![0_u8, 1]);
        let out = lock(&state.state).take(1);
        thread::scope(|scope| {
            let thread = scope.spawn(|| state.wait(0, Instant::now));
            let patience = Instant::now() + Duration::from_secs(30);
            while lock(&state.state).sleepers == 0 {
                assert!(!thread.is_finished(), "it has left");
                assert!(Instant::now() < patience, "it does not sleep");
                thread::yield_now();
            }
            state.with(|work| work.0 = 1);
            state.give_back(out.unwrap_or(1), Instant::now());
            assert_eq!(thread.join().ok().flatten(), Some(1));
        });
    }
}
