use super::*;
use crate::{ErrorKind, ResourceDemand};

fn demand_of(name: &str, count: u64) -> ResourceDemand {
    ResourceDemand { name: name.into(), is_global: false, count }
}

fn rate(priority: u32, resources: &[(&str, u64)]) -> InstanceRate {
    let resources = resources.iter().map(|(name, count)| demand_of(name, *count)).collect();
    InstanceRate { device: None, priority, resources }
}

fn on(device: u32, resources: &[(&str, u64)]) -> InstanceRate {
    InstanceRate { device: Some(device), ..rate(1, resources) }
}

fn global(resources: &[(&str, u64)]) -> InstanceRate {
    let mut rate = rate(1, resources);
    rate.resources.iter_mut().for_each(|one| one.is_global = true);
    rate
}

fn stated(counts: &[(&str, u64, Option<u32>)]) -> Accounts {
    let count = |&(name, count, device): &(&str, _, _)| ResourceCount { name: name.into(), count, device };
    Accounts::new(counts.iter().map(count).collect())
}

impl Accounts {
    fn add_one(&mut self, rate: &InstanceRate) -> InstanceId {
        self.add(std::slice::from_ref(rate)).unwrap()[0].unwrap()
    }

    fn refusal(&mut self, rate: &InstanceRate) -> String {
        let error = self.add(std::slice::from_ref(rate)).unwrap_err();
        assert_eq!(error.kind, ErrorKind::ConfigInvalid);
        error.message.to_string()
    }

    /// All wait; each that gets a permit executes and asks again.
    fn order_of(&mut self, turns: usize) -> Vec<InstanceId> {
        let mut order = Vec::new();
        while order.len() < turns {
            let granted = self.grant();
            assert!(!granted.is_empty(), "somebody is next");
            for id in granted {
                assert!(self.try_take(id));
                order.push(id);
                self.give_back_and_wait(id);
            }
        }
        order
    }
}

#[test]
fn one_that_fits_goes_and_one_that_does_not_waits_for_what_comes_back() {
    let mut accounts = stated(&[]);
    let [a, b] = [accounts.add_one(&rate(1, &[("r", 2)])), accounts.add_one(&rate(1, &[("r", 1), ("s", 1)]))];
    assert!(accounts.try_take(a));
    assert!(!accounts.take_or_wait(b));
    assert_eq!(accounts.grant(), []);
    accounts.give_back(a, true);
    assert_eq!(accounts.grant(), [b]);
    assert!(accounts.try_take(b), "it is its own");
    assert!(!accounts.try_take(b), "it has been taken");
}

#[test]
fn there_is_as_much_as_the_one_that_asks_for_most() {
    let mut accounts = stated(&[]);
    let small = [(); 3].map(|()| accounts.add_one(&rate(1, &[("r", 1)])));
    let large = accounts.add_one(&rate(1, &[("r", 2)]));
    assert!(accounts.try_take(small[0]) && accounts.try_take(small[1]));
    assert!(!accounts.try_take(small[2]));
    accounts.remove(large);
    accounts.give_back(small[0], true);
    assert!(!accounts.try_take(small[2]), "one is there now, and in use");
    accounts.give_back(small[1], true);
    assert!(accounts.try_take(small[2]) && !accounts.try_take(small[0]));
}

#[test]
fn each_device_has_its_own_and_a_global_resource_is_one_for_all() {
    let mut accounts = stated(&[]);
    let [gpu_0, gpu_1, cpu] = [on(0, &[("r", 1)]), on(1, &[("r", 1)]), rate(1, &[("r", 1)])];
    for rate in [&gpu_0, &gpu_1, &cpu] {
        let [one, two] = [accounts.add_one(rate), accounts.add_one(rate)];
        assert!(accounts.try_take(one) && !accounts.try_take(two));
    }
    let mut accounts = stated(&[]);
    let shared = InstanceRate { device: Some(1), ..global(&[("g", 1)]) };
    let [one, two] = [accounts.add_one(&global(&[("g", 1)])), accounts.add_one(&shared)];
    assert!(accounts.try_take(one) && !accounts.try_take(two));
}

#[test]
fn counts_are_stated_for_all_devices_or_for_one() {
    let mut accounts =
        stated(&[("r", 1, None), ("r", 2, Some(1)), ("s", 3, Some(0)), ("t", 4, None), ("t", 2, None)]);
    for (rate, counts) in [(on(0, &[("r", 1)]), 1), (on(1, &[("r", 1)]), 2), (rate(1, &[("s", 1)]), 3)] {
        let ids: Vec<_> = (0..=counts).map(|_| accounts.add_one(&rate)).collect();
        assert_eq!(ids.iter().filter(|&&id| accounts.try_take(id)).count(), counts);
    }
    // A global one is counted wherever it is stated; of two counts for the same the lower holds.
    assert!(accounts.add(&[global(&[("t", 2)])]).is_ok());
    assert!(stated(&[("g", 5, Some(7))]).add(&[global(&[("g", 5)])]).is_ok());
    let text = accounts.refusal(&global(&[("t", 3)]));
    assert!(text.starts_with("Resource count for \"t\" is limited to 2 which"), "{text}");
}

#[test]
fn what_can_never_be_had_is_refused_and_changes_nothing() {
    let mut accounts = stated(&[("r", 4, None)]);
    let text = |name, count, needed| {
        format!(
            "Resource count for \"{name}\" is limited to {count} which will prevent scheduling of one or more model \
             instances, the minimum required count is {needed}"
        )
    };
    assert_eq!(accounts.refusal(&rate(1, &[("r", 5)])), text("r", 4, 5));
    assert_eq!(accounts.refusal(&rate(1, &[("other", 1)])), text("other", 0, 1));
    let id = accounts.add_one(&rate(1, &[("r", 4)]));
    assert!(accounts.try_take(id));
    let both =
        "Resource \"r\" is present as both global and device-specific resource in the model configuration.";
    assert_eq!(accounts.refusal(&global(&[("r", 1)])), both);
    accounts.remove(id);
    assert!(accounts.add(&[global(&[("r", 1)])]).is_ok(), "the other has gone");
}

#[test]
fn instances_without_resources_have_no_account() {
    let mut accounts = stated(&[]);
    assert_eq!(accounts.add(&[rate(1, &[]), rate(1, &[("r", 1)])]).unwrap(), [None, Some(0)]);
}

#[test]
fn the_higher_the_priority_the_fewer_turns() {
    let mut accounts = stated(&[]);
    let ids = [1, 2, 0, 4].map(|priority| accounts.add_one(&rate(priority, &[("r", 1)])));
    assert!(accounts.try_take(ids[0]));
    for id in &ids[1..] {
        assert!(!accounts.take_or_wait(*id));
    }
    accounts.give_back_and_wait(ids[0]);
    let order = [vec![ids[0]], accounts.order_of(11 * 10 - 1)].concat();
    let turns = ids.map(|id| order.iter().filter(|&&one| one == id).count());
    assert_eq!(turns, [40, 20, 40, 10]);
}

#[test]
fn nobody_passes_one_that_waits_for_the_same_resource() {
    let mut accounts = stated(&[("r", 4, None), ("s", 1, None)]);
    let small = [(); 3].map(|()| accounts.add_one(&rate(1, &[("r", 2)])));
    let large = accounts.add_one(&rate(1, &[("r", 4), ("s", 1)]));
    let [other, apart] = [accounts.add_one(&rate(1, &[("s", 1)])), accounts.add_one(&rate(1, &[("r", 0)]))];
    assert!(accounts.try_take(small[0]) && accounts.try_take(small[1]));
    assert!(!accounts.take_or_wait(large));
    assert!(!accounts.take_or_wait(small[2]) && !accounts.take_or_wait(other));
    assert!(accounts.try_take(apart), "it needs none of it");
    accounts.give_back(small[0], true);
    assert_eq!(accounts.grant(), [], "what is free is kept for the large one");
    accounts.give_back(small[1], true);
    assert_eq!(accounts.grant(), [large]);
    assert!(accounts.try_take(large));
    accounts.give_back(large, true);
    assert_eq!(accounts.grant(), [small[2], other]);
}

#[test]
fn one_that_was_idle_does_not_shut_out_the_others() {
    let mut accounts = stated(&[]);
    let [busy, idle] = [(); 2].map(|()| accounts.add_one(&rate(1, &[("r", 1)])));
    for _ in 0..1000 {
        assert!(accounts.try_take(busy));
        accounts.give_back(busy, true);
    }
    assert!(accounts.try_take(busy) && !accounts.take_or_wait(idle));
    accounts.give_back_and_wait(busy);
    let order = accounts.order_of(20);
    assert_eq!(order.iter().filter(|&&one| one == busy).count(), 10, "they take turns: {order:?}");
}

#[test]
fn one_that_begins_has_no_claim_to_all_that_the_idle_ones_have_had() {
    let mut accounts = stated(&[]);
    let old = accounts.add_one(&rate(1, &[("r", 1), ("s", 1)]));
    for _ in 0..100_000 {
        assert!(accounts.try_take(old));
        accounts.give_back(old, true);
    }
    // It asks while nobody competes.
    let new = accounts.add_one(&rate(1, &[("r", 1)]));
    assert!(accounts.try_take(new) && !accounts.take_or_wait(old));
    accounts.give_back_and_wait(new);
    let order = accounts.order_of(20);
    assert_eq!(order.iter().filter(|&&one| one == new).count(), 10, "they take turns: {order:?}");
}

#[test]
fn one_that_goes_first_because_it_was_passed_does_not_put_others_back() {
    let mut accounts = stated(&[]);
    let [far, near, third] = [(); 3].map(|()| accounts.add_one(&rate(1, &[("r", 1)])));
    accounts.instances.get_mut(&far).unwrap().score = u64::MAX / 2;
    assert!(accounts.try_take(near) && !accounts.take_or_wait(far));
    accounts.give_back_and_wait(near);
    let order = accounts.order_of(PATIENCE as usize + 1);
    assert_eq!(order.last(), Some(&far));
    assert!(!accounts.take_or_wait(third));
    let order = accounts.order_of(20);
    assert!(order.iter().filter(|&&one| one == third).count() >= 9, "they take turns: {order:?}");
}

/// Numbers that look random, the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

#[test]
fn nobody_waits_for_what_is_free_whatever_was_done() {
    for seed in 0..100 {
        let mut numbers = Numbers(seed);
        let mut accounts =
            if seed % 2 == 0 { stated(&[]) } else { stated(&[("r", 3, None), ("s", 2, None)]) };
        let mut ids = Vec::new();
        for _ in 0..500 {
            let id = if ids.is_empty() { 0 } else { ids[numbers.below(ids.len())] };
            match numbers.below(12) {
                0 if ids.len() < 8 => {
                    let counts = [("r", numbers.below(4) as u64), ("s", numbers.below(3) as u64)];
                    ids.push(accounts.add_one(&rate(numbers.below(3) as u32, &counts)));
                }
                1 if numbers.below(4) == 0 => {
                    accounts.remove(id);
                    ids.retain(|one| *one != id);
                }
                2 => _ = accounts.withdraw(id),
                3 => accounts.decline(id),
                4 => _ = accounts.try_take(id),
                5 => accounts.give_back(id, numbers.below(2) == 0),
                6 | 7 => accounts.give_back_and_wait(id),
                _ => _ = accounts.take_or_wait(id),
            }
            accounts.grant();
            assert!(accounts.is_settled());
            for (resource, in_use) in &accounts.in_use {
                let having = |one: &&Instance| matches!(one.state, State::Granted | State::Running { .. });
                let have = accounts.instances.values().filter(having);
                let all: u64 = have.filter_map(|one| one.demand.get(resource)).sum();
                assert_eq!(*in_use, all, "{resource:?}");
            }
        }
    }
}

#[test]
fn who_was_passed_for_long_is_told_of_it_at_once() {
    let mut accounts = stated(&[("q", 2, None), ("r", 1, None), ("s", 2, None)]);
    let holder = accounts.add_one(&rate(1, &[("r", 1)]));
    let first = accounts.add_one(&rate(1, &[("r", 1), ("s", 1)]));
    let passed = accounts.add_one(&rate(1, &[("q", 1), ("s", 1)]));
    let other = accounts.add_one(&rate(1, &[("q", 1)]));
    assert!(accounts.try_take(holder) && !accounts.take_or_wait(first));
    assert!(!accounts.take_or_wait(passed), "it is behind the first one");
    let one = accounts.instances.get_mut(&passed).unwrap();
    (one.score, one.passed) = (10, PATIENCE - 1);
    accounts.take_or_wait(other);
    assert!(!accounts.is_settled(), "it was passed once more, and is before the first one");
    assert_eq!(accounts.grant(), [passed]);
}

#[test]
fn nobody_is_passed_for_ever() {
    let mut accounts = stated(&[]);
    let [far, near] = [&[("r", 1), ("s", 1)][..], &[("r", 1)]].map(|asks| accounts.add_one(&rate(1, asks)));
    accounts.instances.get_mut(&far).unwrap().score = u64::MAX / 2;
    assert!(accounts.try_take(near) && !accounts.take_or_wait(far));
    accounts.give_back_and_wait(near);
    let order = accounts.order_of(2 * PATIENCE as usize + 2);
    assert_eq!(order.iter().position(|&one| one == far), Some(PATIENCE as usize));
}

#[test]
fn one_that_waits_no_more_is_in_nobodys_way() {
    let mut accounts = stated(&[("r", 2, None)]);
    let [first, large, small] = [1, 2, 1].map(|count| accounts.add_one(&rate(1, &[("r", count)])));
    assert!(accounts.try_take(first));
    assert!(!accounts.take_or_wait(large) && !accounts.take_or_wait(small));
    assert!(accounts.withdraw(large) && !accounts.withdraw(large));
    assert_eq!(accounts.grant(), [small]);
    assert!(!accounts.withdraw(small), "its permit is on the way");
    accounts.decline(small);
    accounts.decline(first);
    assert!(!accounts.take_or_wait(large), "the first is at work");
    accounts.remove(first);
    assert_eq!(accounts.grant(), [large]);
    accounts.remove(large);
    assert!(accounts.try_take(small));
    assert!(!accounts.withdraw(99) && !accounts.take_or_wait(99));
}

#[test]
fn a_slot_that_asks_before_its_permit_is_back_has_to_wait() {
    let mut accounts = stated(&[]);
    let [one, other] = [(); 2].map(|()| accounts.add_one(&rate(1, &[("r", 1)])));
    assert!(accounts.try_take(one));
    assert!(!accounts.take_or_wait(other) && !accounts.take_or_wait(one));
    accounts.give_back(one, true);
    assert_eq!(accounts.grant(), [other], "in turns");
    accounts.give_back(one, true);
    assert!(accounts.try_take(other), "what has come back does not come back twice");
    accounts.give_back(other, false);
    assert_eq!(accounts.grant(), [one]);
}
