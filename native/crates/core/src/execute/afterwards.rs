//! What follows from answers: it is done once the thread that brought them holds no slot and no lock of the core.
//!
//! Whoever brings answers opens a scope: [`Lease::run`] does. A mailbox whose mail has consequences leaves them to the
//! scope of the thread; they come when the outermost one closes. All mail comes first, so that all of it is in the next
//! queues before anyone leads; then the leases that it gave, on the same thread. That goes on until nothing is left, in
//! a loop that never nests. All this belongs to one thread: nothing is shared.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::{Lease, Mail, Step};

/// A mailbox whose mail has consequences.
pub trait FollowUp: Send + Sync {
    /// The thread holds nothing. Leases go to [`Lease::run_afterwards`].
    fn follow(&self, mail: Vec<Mail>);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    Closed,
    Open,
    HasWork,
}

#[derive(Default)]
struct WaitingFollowUps {
    mail: Vec<(Arc<dyn FollowUp>, Vec<Mail>)>,
    leases: Vec<Lease>,
}

thread_local! {
    static SCOPE: Cell<Scope> = const { Cell::new(Scope::Closed) };
    static WAITING: RefCell<WaitingFollowUps> = const { RefCell::new(WaitingFollowUps { mail: Vec::new(), leases: Vec::new() }) };
}

/// A scope of the thread. To be dropped where the thread holds no slot and no lock.
#[must_use]
pub struct Afterwards {
    outermost: bool,
    _of_this_thread: PhantomData<*const ()>,
}

impl Afterwards {
    #[inline]
    pub fn open() -> Self {
        let outermost = SCOPE.get() == Scope::Closed;
        if outermost {
            SCOPE.set(Scope::Open);
        }
        Self { outermost, _of_this_thread: PhantomData }
    }

    /// Leaves the consequences of mail to the scope of this thread. The mail comes back where none is open.
    pub fn follow(who: &Arc<dyn FollowUp>, mail: Vec<Mail>) -> Result<(), Vec<Mail>> {
        if SCOPE.get() == Scope::Closed {
            return Err(mail);
        }
        SCOPE.set(Scope::HasWork);
        WAITING.with_borrow_mut(|waiting| {
            match waiting.mail.iter_mut().find(|(known, _)| Arc::ptr_eq(known, who)) {
                Some((_, waiting)) => waiting.extend(mail),
                None => waiting.mail.push((who.clone(), mail)),
            }
        });
        Ok(())
    }

    /// The same for a lease.
    pub(crate) fn lead(lease: Lease) -> Result<(), Lease> {
        if SCOPE.get() == Scope::Closed {
            return Err(lease);
        }
        SCOPE.set(Scope::HasWork);
        WAITING.with_borrow_mut(|waiting| waiting.leases.push(lease));
        Ok(())
    }
}

impl Drop for Afterwards {
    #[inline]
    fn drop(&mut self) {
        if !self.outermost {
            return;
        }
        if SCOPE.get() == Scope::HasWork {
            go_on();
        }
        SCOPE.set(Scope::Closed);
    }
}

#[cold]
fn go_on() {
    loop {
        let mail = WAITING.with_borrow_mut(|waiting| std::mem::take(&mut waiting.mail));
        if !mail.is_empty() {
            for (who, mail) in mail {
                if catch_unwind(AssertUnwindSafe(|| who.follow(mail))).is_err() {
                    log::error!("what follows from answers panicked");
                }
            }
            continue;
        }
        let leases = WAITING.with_borrow_mut(|waiting| std::mem::take(&mut waiting.leases));
        if leases.is_empty() {
            return;
        }
        for lease in leases {
            match catch_unwind(AssertUnwindSafe(|| lease.run())) {
                Ok(Step::Again(lease)) => lease.leave_to_others(),
                Ok(Step::Done) => {}
                Err(_) => log::error!("a batch panicked where its input appeared"),
            }
        }
    }
}
