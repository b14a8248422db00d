//! The books of the rate limiter: who has which resources, who waits for some, and who is next.
//!
//! Pure: no threads, no time. An instance has all that it asks for or nothing. Among those that wait for a resource, the
//! one with the lowest score is first: its executions times its priority. Nobody passes one before it that waits for
//! the same resource, not even for what that one cannot use yet, so that who asks for much gets it, too.
//!
//! Scores begin where the others are: each resource has a level, the score of the latest one that got it, and whoever
//! asks below it asks with it. So nobody has a claim to turns that it did not ask for, whoever else was idle then.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::resources::{Demand, Resource, ResourceCount, demand, supply};
use crate::{Error, InstanceRate};

pub(crate) type InstanceId = u64;

/// Whoever was passed so many times, times its priority, goes first, whatever its score.
const PATIENCE: u64 = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Waiting,
    /// It has its resources, and has not been told yet.
    Granted,
    Running {
        /// It has asked for the next permit already.
        waits: bool,
    },
}

struct Instance {
    demand: Demand,
    /// At least 1.
    priority: u64,
    score: u64,
    state: State,
    /// When it began to wait: the number of that event.
    since: u64,
    /// How often others got what it waits for.
    passed: u64,
}

pub(super) struct Accounts {
    stated: Vec<ResourceCount>,
    instances: BTreeMap<InstanceId, Instance>,
    supply: BTreeMap<Resource, u64>,
    in_use: BTreeMap<Resource, u64>,
    /// Never falls.
    levels: BTreeMap<Resource, u64>,
    next_id: InstanceId,
    events: u64,
}

impl Instance {
    /// What it has to have. Who asks for none of a resource is in nobody's way.
    fn needs(&self) -> impl Iterator<Item = (&Resource, u64)> {
        self.demand.iter().map(|(resource, &count)| (resource, count)).filter(|(_, count)| *count > 0)
    }

    fn needs_some(&self, resource: &Resource) -> bool {
        self.demand.get(resource).is_some_and(|&count| count > 0)
    }

    fn shares(&self, other: &Self) -> bool {
        self.needs().any(|(resource, _)| other.needs_some(resource))
    }

    /// The lowest is first.
    fn order(&self) -> (Reverse<bool>, u64, u64) {
        let overdue = self.passed >= PATIENCE.saturating_mul(self.priority);
        (Reverse(overdue), if overdue { 0 } else { self.score }, self.since)
    }
}

impl Accounts {
    /// Of a resource that is stated twice for the same device, the lower count holds, as in Triton.
    pub(super) fn new(stated: Vec<ResourceCount>) -> Self {
        let mut counts: BTreeMap<(String, Option<u32>), u64> = BTreeMap::new();
        for ResourceCount { name, count, device } in stated {
            let lowest = counts.entry((name, device)).or_insert(count);
            *lowest = count.min(*lowest);
        }
        let stated = counts.into_iter().map(|((name, device), count)| ResourceCount { name, count, device });
        Self {
            stated: stated.collect(),
            instances: BTreeMap::new(),
            supply: BTreeMap::new(),
            in_use: BTreeMap::new(),
            levels: BTreeMap::new(),
            next_id: 0,
            events: 0,
        }
    }

    /// Adds those that ask for resources, all of them or none.
    pub(super) fn add(&mut self, rates: &[InstanceRate]) -> Result<Vec<Option<InstanceId>>, Error> {
        let demands: Vec<Demand> = rates.iter().map(demand).collect();
        let all = self.instances.values().map(|one| &one.demand).chain(&demands);
        self.supply = supply(&self.stated, all)?;
        let mut added = Vec::with_capacity(rates.len());
        for (demand, rate) in demands.into_iter().zip(rates) {
            if demand.is_empty() {
                added.push(None);
                continue;
            }
            let instance = Instance {
                demand,
                priority: u64::from(rate.priority.max(1)),
                score: 0,
                state: State::Idle,
                since: 0,
                passed: 0,
            };
            self.instances.insert(self.next_id, instance);
            added.push(Some(self.next_id));
            self.next_id += 1;
        }
        Ok(added)
    }

    pub(super) fn remove(&mut self, id: InstanceId) {
        self.free(id);
        if self.instances.remove(&id).is_none() {
            return;
        }
        let demands = self.instances.values().map(|one| &one.demand);
        self.supply = supply(&self.stated, demands).expect("with more instances there was no conflict");
        self.levels.retain(|resource, _| self.supply.contains_key(resource));
    }

    /// A permit, if it is the instance's turn and all that it asks for is free.
    pub(super) fn try_take(&mut self, id: InstanceId) -> bool {
        match self.instances.get(&id).map(|one| one.state) {
            Some(State::Granted) => self.set(id, State::Running { waits: false }),
            Some(State::Idle) if self.is_next(id) => {
                self.allocate(id);
                self.set(id, State::Running { waits: false });
            }
            _ => return false,
        }
        true
    }

    /// The same; an instance that gets none waits.
    pub(super) fn take_or_wait(&mut self, id: InstanceId) -> bool {
        if self.try_take(id) {
            return true;
        }
        match self.instances.get(&id).map(|one| one.state) {
            Some(State::Idle) => self.wait(id),
            Some(State::Running { .. }) => self.set(id, State::Running { waits: true }),
            _ => {}
        }
        false
    }

    /// What a running instance has goes back.
    pub(super) fn give_back(&mut self, id: InstanceId, executed: bool) {
        let Some(instance) = self.instances.get_mut(&id) else { return };
        let State::Running { waits } = instance.state else { return };
        if executed {
            instance.score = instance.score.saturating_add(instance.priority);
        }
        self.free(id);
        if waits {
            self.wait(id);
        }
    }

    /// The same after an execution, of one that asks again.
    pub(super) fn give_back_and_wait(&mut self, id: InstanceId) {
        if let Some(State::Running { waits }) = self.instances.get_mut(&id).map(|one| &mut one.state) {
            *waits = true;
        }
        self.give_back(id, true);
    }

    /// Whether it waited.
    pub(super) fn withdraw(&mut self, id: InstanceId) -> bool {
        match self.instances.get(&id).map(|one| one.state) {
            Some(State::Waiting) => self.set(id, State::Idle),
            Some(State::Running { waits: true }) => self.set(id, State::Running { waits: false }),
            _ => return false,
        }
        true
    }

    pub(super) fn decline(&mut self, id: InstanceId) {
        if self.instances.get(&id).is_some_and(|one| one.state == State::Granted) {
            self.free(id);
        }
    }

    /// Gives those that wait what is free, in their order. Answers who got a permit.
    pub(super) fn grant(&mut self) -> Vec<InstanceId> {
        let mut granted = Vec::new();
        loop {
            let before = granted.len();
            for id in self.waiting() {
                if self.is_next(id) {
                    self.allocate(id);
                    granted.push(id);
                }
            }
            // Who was passed may be before others now.
            if granted.len() == before {
                return granted;
            }
        }
    }

    /// Whether nobody waits who could have a permit.
    pub(super) fn is_settled(&self) -> bool {
        !self.waiting().into_iter().any(|id| self.is_next(id))
    }

    /// In their order.
    fn waiting(&self) -> Vec<InstanceId> {
        let waiting = self.instances.iter().filter(|(_, one)| one.state == State::Waiting);
        let mut waiting: Vec<_> = waiting.map(|(id, one)| (one.order(), *id)).collect();
        waiting.sort_unstable();
        waiting.into_iter().map(|(_, id)| id).collect()
    }

    /// Whether all that it asks for is free, and nobody before it waits for some of that.
    fn is_next(&self, id: InstanceId) -> bool {
        let one = &self.instances[&id];
        if !one.needs().all(|(resource, count)| self.is_free(resource, count)) {
            return false;
        }
        let mut waiting = self.instances.values().filter(|other| other.state == State::Waiting).peekable();
        if waiting.peek().is_none() {
            return true;
        }
        let order = match one.state {
            State::Waiting => one.order(),
            _ => (Reverse(false), self.level(id), self.events),
        };
        !waiting.any(|other| other.order() < order && other.shares(one))
    }

    fn is_free(&self, resource: &Resource, count: u64) -> bool {
        let in_use = self.in_use.get(resource).copied().unwrap_or(0);
        self.supply.get(resource).is_some_and(|&there_are| in_use + count <= there_are)
    }

    /// The score that it asks with.
    fn level(&self, id: InstanceId) -> u64 {
        let one = &self.instances[&id];
        let levels = one.needs().filter_map(|(resource, _)| self.levels.get(resource).copied());
        levels.fold(one.score, u64::max)
    }

    fn wait(&mut self, id: InstanceId) {
        let (score, since) = (self.level(id), self.events);
        self.events += 1;
        if let Some(one) = self.instances.get_mut(&id) {
            (one.score, one.since, one.passed, one.state) = (score, since, 0, State::Waiting);
        }
    }

    /// Its state is [`State::Granted`] then.
    fn allocate(&mut self, id: InstanceId) {
        let level = self.level(id);
        let Some(mut taker) = self.instances.remove(&id) else { return };
        if taker.state == State::Idle {
            (taker.score, taker.since) = (level, self.events);
        }
        for (resource, count) in taker.needs() {
            *self.in_use.entry(resource.clone()).or_default() += count;
            // One that goes first because it was passed may have a higher score than those who wait on.
            let waiting = self.instances.values().filter(|other| other.state == State::Waiting);
            let waiting = waiting.filter(|other| other.needs_some(resource)).map(|other| other.score);
            let lowest = waiting.fold(taker.score, u64::min);
            let level = self.levels.entry(resource.clone()).or_default();
            *level = lowest.max(*level);
        }
        for other in self.instances.values_mut() {
            if other.state == State::Waiting && other.since < taker.since && other.shares(&taker) {
                other.passed += 1;
            }
        }
        taker.state = State::Granted;
        self.instances.insert(id, taker);
    }

    /// It is idle, and has nothing.
    fn free(&mut self, id: InstanceId) {
        let Some(instance) = self.instances.get_mut(&id) else { return };
        let has = matches!(instance.state, State::Granted | State::Running { .. });
        instance.state = State::Idle;
        if !has {
            return;
        }
        for (resource, count) in instance.needs() {
            if let Some(in_use) = self.in_use.get_mut(resource) {
                *in_use = in_use.saturating_sub(count);
                if *in_use == 0 {
                    self.in_use.remove(resource);
                }
            }
        }
    }

    fn set(&mut self, id: InstanceId, state: State) {
        if let Some(instance) = self.instances.get_mut(&id) {
            instance.state = state;
        }
    }
}

#[cfg(all(test, not(loom)))]
#[path = "accounts_tests.rs"]
mod tests;
