//! The rate limiter: resources that the instances of all models share, and who gets them next.
//!
//! An instance that asks for resources executes only with a permit, which is all of them together. Its slot is in hand
//! when it asks; where it has to wait, the slot goes home with a mark, its work stays in the queue, and whoever gives
//! resources back offers the permit to the model (`runner/permits.rs`). The lock of the limiter is taken under no
//! runner's lock, and no runner's lock under it.

mod accounts;
mod resources;

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use crate::base::sync::{Mutex, lock};
use crate::{Error, InstanceRate, Runner};
use accounts::Accounts;

pub(crate) use accounts::InstanceId;
pub use resources::ResourceCount;

/// One for all models of a server.
pub struct RateLimiter {
    books: Mutex<Books>,
}

struct Books {
    accounts: Accounts,
    /// Whose the instances are, and their slots there.
    owners: HashMap<InstanceId, (Weak<Runner>, usize)>,
}

/// A permit for an instance that has waited. To be offered to its runner under no lock.
#[must_use]
pub(crate) struct Grant {
    id: InstanceId,
    runner: Weak<Runner>,
    slot: usize,
}

impl RateLimiter {
    /// `counts` are of the resources that there are: where there are none, each is there as often as an instance asks
    /// for it at most.
    pub fn new(counts: Vec<ResourceCount>) -> Self {
        let books = Books { accounts: Accounts::new(counts), owners: HashMap::new() };
        Self { books: Mutex::new(books) }
    }

    /// Of each instance that asks for resources.
    pub(crate) fn add(&self, rates: &[InstanceRate]) -> Result<Vec<Option<InstanceId>>, Error> {
        // A resource may be there more often by it, and somebody waits for that.
        self.settle(|books| books.accounts.add(rates))
    }

    pub(crate) fn set_owner(&self, id: InstanceId, runner: Weak<Runner>, slot: usize) {
        lock(&self.books).owners.insert(id, (runner, slot));
    }

    /// Takes instances out, and back what they have.
    pub(crate) fn remove(&self, ids: impl Iterator<Item = InstanceId>) {
        self.settle(|books| {
            for id in ids {
                books.accounts.remove(id);
                books.owners.remove(&id);
            }
        });
    }

    /// A permit, if there is one now.
    pub(crate) fn try_take(&self, id: InstanceId) -> bool {
        self.settle(|books| books.accounts.try_take(id))
    }

    /// The same, but an instance that gets none waits from now on.
    pub(crate) fn take_or_wait(&self, id: InstanceId) -> bool {
        self.settle(|books| books.accounts.take_or_wait(id))
    }

    /// Gives a permit back that was taken, after an execution or without one.
    pub(crate) fn give_back(&self, id: InstanceId, executed: bool) {
        self.settle(|books| books.accounts.give_back(id, executed));
    }

    /// The same where there is more to execute: the instance asks again at once, before others get what is free now.
    /// Answers whether it has a permit; otherwise it waits. Then `before_others` is called.
    pub(crate) fn give_back_for_more(&self, id: InstanceId, before_others: impl FnOnce(bool)) {
        let ((), granted) = self.change(|books| books.accounts.give_back_and_wait(id));
        let (own, granted) = granted.into_iter().partition::<Vec<_>, _>(|grant| grant.id == id);
        before_others(!own.is_empty());
        self.offer(granted);
    }

    /// Instances, each with its slot, do not wait any more. Answers the slots of those that did: to others a permit may be
    /// on its way.
    pub(crate) fn withdraw(&self, waits: impl Iterator<Item = (InstanceId, usize)>) -> Vec<usize> {
        self.settle(|books| {
            let withdrawn = waits.filter(|(id, _)| books.accounts.withdraw(*id));
            withdrawn.map(|(_, slot)| slot).collect()
        })
    }

    /// Takes back what instances wait for, and what was granted and not taken yet.
    pub(crate) fn dismiss(&self, ids: impl Iterator<Item = InstanceId>) {
        self.settle(|books| {
            for id in ids {
                books.accounts.withdraw(id);
                books.accounts.decline(id);
            }
        });
    }

    /// Changes the books, and offers what is free by it to those who wait.
    fn settle<R>(&self, change: impl FnOnce(&mut Books) -> R) -> R {
        let (result, granted) = self.change(change);
        self.offer(granted);
        result
    }

    /// Changes the books. While their lock is free, nobody waits who could have a permit.
    fn change<R>(&self, change: impl FnOnce(&mut Books) -> R) -> (R, Vec<Grant>) {
        let mut books = lock(&self.books);
        debug_assert!(books.accounts.is_settled(), "somebody waits for what is free");
        let result = change(&mut books);
        (result, books.grants())
    }

    /// A permit that nobody wants goes to the next.
    fn offer(&self, mut granted: Vec<Grant>) {
        while let Some(Grant { id, runner, slot }) = granted.pop() {
            let runner = runner.upgrade();
            if runner.as_ref().is_some_and(|runner| runner.permit_came(slot)) {
                continue;
            }
            granted.extend(self.change(|books| books.accounts.decline(id)).1);
            if let Some(runner) = runner {
                runner.waits_no_more(slot);
            }
        }
    }
}

impl Books {
    fn grants(&mut self) -> Vec<Grant> {
        let granted = self.accounts.grant();
        let owner = |id| self.owners.get(&id).cloned().unwrap_or_default();
        granted
            .into_iter()
            .map(|id| {
                let (runner, slot) = owner(id);
                Grant { id, runner, slot }
            })
            .collect()
    }
}

/// The permits of one runner. They go back when it is dropped, if not before.
pub(crate) struct Permits {
    pub(crate) limiter: Arc<RateLimiter>,
    /// Of each slot; none of one that asks for nothing.
    ids: Vec<Option<InstanceId>>,
}

impl Permits {
    /// None where nothing is asked for.
    pub(crate) fn of(
        limiter: Option<&Arc<RateLimiter>>,
        rates: &[InstanceRate],
    ) -> Result<Option<Self>, Error> {
        let Some(limiter) = limiter.filter(|_| rates.iter().any(InstanceRate::is_limited)) else {
            return Ok(None);
        };
        Ok(Some(Self { limiter: limiter.clone(), ids: limiter.add(rates)? }))
    }

    pub(crate) fn belong_to(&self, runner: &Weak<Runner>) {
        for (slot, id) in self.ids.iter().enumerate() {
            if let Some(id) = id {
                self.limiter.set_owner(*id, runner.clone(), slot);
            }
        }
    }

    pub(crate) fn id(&self, slot: usize) -> Option<InstanceId> {
        self.ids.get(slot).copied().flatten()
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = InstanceId> {
        self.ids.iter().copied().flatten()
    }
}

impl Drop for Permits {
    fn drop(&mut self) {
        self.limiter.remove(self.ids());
    }
}
