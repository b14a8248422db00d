//! A slot that an engine keeps beyond its call.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Instant;

use crate::base::sync::{Mutex, lock};
use crate::{Lease, Runner, Slot};

/// The slot of [`Engine::begin`](crate::Engine::begin). Whoever drops it, on any thread, gives the slot
/// back; work that is due for it goes to the drivers or to the clock thread of the model. A thread that
/// panics gives back a slot without its state.
pub struct SlotToken {
    /// `None` once given back.
    slot: Option<Slot>,
    stay: Arc<Stay>,
}

/// The time that a slot is away.
pub(crate) struct Stay {
    runner: Arc<Runner>,
    started: Instant,
    call: Mutex<Call>,
}

/// The engine's call that began the batch.
enum Call {
    /// Its caller leads on when it returns, with the slot if that is back.
    GoesOn(Option<Slot>),
    Returned,
}

impl SlotToken {
    pub(crate) fn new(runner: Arc<Runner>, slot: Slot, started: Instant) -> (Self, Arc<Stay>) {
        let stay = Arc::new(Stay { runner, started, call: Mutex::new(Call::GoesOn(None)) });
        (Self { slot: Some(slot), stay: stay.clone() }, stay)
    }

    /// What dropping it does, but the caller may lead, if there is more for the slot: not inside a call of
    /// the engine, which would be called again.
    pub fn give_back(mut self) -> Option<Lease> {
        self.come_back()
    }

    fn come_back(&mut self) -> Option<Lease> {
        let mut slot = self.slot.take()?;
        if std::thread::panicking() {
            slot.forget_state();
        }
        let slot = self.stay.come_back(slot)?;
        Lease::after(&self.stay.runner, slot, self.stay.started)
    }
}

impl Stay {
    /// Whoever called the engine has returned from it. Answers the slot if that is back.
    pub(crate) fn call_returned(&self) -> Option<Slot> {
        match std::mem::replace(&mut *lock(&self.call), Call::Returned) {
            Call::GoesOn(slot) => slot,
            Call::Returned => None,
        }
    }

    /// Answers the slot if nobody else leads on with it.
    fn come_back(&self, slot: Slot) -> Option<Slot> {
        match &mut *lock(&self.call) {
            Call::GoesOn(place) => {
                *place = Some(slot);
                None
            }
            Call::Returned => Some(slot),
        }
    }
}

impl Deref for SlotToken {
    type Target = Slot;

    fn deref(&self) -> &Slot {
        self.slot.as_ref().expect("the slot is here until the token goes")
    }
}

impl DerefMut for SlotToken {
    fn deref_mut(&mut self) -> &mut Slot {
        self.slot.as_mut().expect("the slot is here until the token goes")
    }
}

impl Drop for SlotToken {
    fn drop(&mut self) {
        if let Some(lease) = self.come_back() {
            lease.leave_to_others();
        }
    }
}
