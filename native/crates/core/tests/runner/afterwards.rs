//! What follows from answers is done where the thread holds nothing.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::{self, ThreadId};

use kushi_core::{Afterwards, Capability, FollowUp, Mail, Mailbox, Placement, Reply, Request};
use kushi_testkit::{Act, PuppetEngine, Scene, drive, echo_spec, int32};

type Consequence = Box<dyn Fn(Vec<Mail>) + Send + Sync>;

/// Leaves the consequences of its mail to the thread that brings it; says what could not be left.
struct Follower {
    me: Weak<Self>,
    act: Consequence,
    not_left: Mutex<VecDeque<Mail>>,
}

impl Follower {
    fn new(act: impl Fn(Vec<Mail>) + Send + Sync + 'static) -> Arc<Self> {
        Arc::new_cyclic(|me| Self { me: me.clone(), act: Box::new(act), not_left: Mutex::default() })
    }

    fn not_left(&self) -> usize {
        self.not_left.lock().map_or(0, |mail| mail.len())
    }
}

impl Mailbox for Follower {
    fn deliver(&self, mail: Vec<Mail>) {
        let me: Arc<dyn FollowUp> = self.me.upgrade().expect("it is held by requests");
        if let Err(mail) = Afterwards::follow(&me, mail) {
            self.not_left.lock().expect("no panic").extend(mail);
        }
    }
}

impl FollowUp for Follower {
    fn follow(&self, mail: Vec<Mail>) {
        (self.act)(mail);
    }
}

fn to(scene: &Scene, mailbox: &Arc<Follower>, key: u64) -> Request {
    Request { reply: Reply::new(mailbox.clone(), key), ..scene.request(key, 1) }
}

fn inline() -> Arc<Scene> {
    let scene = Scene::without_drivers(echo_spec());
    scene.earn_inline();
    Arc::new(scene)
}

#[test]
fn a_long_chain_of_requests_runs_on_one_thread_and_does_not_nest() {
    const LENGTH: u64 = 20_000;
    let scene = inline();
    let (count, me) = (Arc::new(AtomicUsize::new(0)), thread::current().id());
    let next = Arc::new(Mutex::new(None::<Arc<Follower>>));
    let follower = {
        let (scene, count, next) = (Arc::downgrade(&scene), count.clone(), next.clone());
        Follower::new(move |mail| {
            let scene = scene.upgrade().expect("the test holds it");
            assert_eq!((mail.len(), thread::current().id()), (1, me));
            count.fetch_add(1, Ordering::SeqCst);
            let key = mail[0].key + 1;
            let mailbox = next.lock().ok().and_then(|next| next.clone());
            if key < LENGTH
                && let Some(mailbox) = mailbox
            {
                // The slot has been given back, or nobody would have to lead.
                let (_, lease) = scene.lead(to(&scene, &mailbox, key));
                lease.expect("the slot is free").run_afterwards();
            }
        })
    };
    *next.lock().expect("no panic") = Some(follower.clone());
    let (_, lease) = scene.lead(to(&scene, &follower, 0));
    assert_eq!(drive(lease.expect("nobody leads")), 1);
    assert_eq!(count.load(Ordering::SeqCst) as u64, LENGTH);
    *next.lock().expect("no panic") = None;
}

#[test]
fn all_mail_of_a_thread_comes_before_its_leases() {
    let (first, second) = (inline(), inline());
    let before = second.puppet.seen().len();
    let follower = {
        let second = second.clone();
        Follower::new(move |mail| {
            for mail in mail {
                if let (_, Some(lease)) = second.lead(second.request(mail.key, 1)) {
                    lease.run_afterwards();
                }
            }
        })
    };
    let requests = (0..4).map(|key| first.lead(to(&first, &follower, key)).1);
    let leases: Vec<_> = requests.flatten().collect();
    for lease in leases {
        drive(lease);
    }
    let seen = second.puppet.seen();
    assert_eq!(seen[before..].iter().map(|batch| batch.rows).collect::<Vec<_>>(), [4]);
    assert_eq!(seen.last().map(|batch| batch.thread), Some(thread::current().id()));
    assert_eq!(second.letters.answers(4).len(), 4);
}

#[test]
fn where_no_scope_is_open_mail_comes_back_and_a_lease_goes_to_others() {
    let scene = Scene::keeping(echo_spec());
    let follower = Follower::new(|_| panic!("nobody follows"));
    scene.puppet.script([Act::Late]);
    let (_, lease) = scene.lead(to(&scene, &follower, 1));
    lease.expect("nobody leads").run_afterwards();
    drive(scene.leases.lease());
    scene.puppet.late().scatter(&[Some(int32(&[1, 1], [1]))]);
    assert_eq!(follower.not_left(), 1);
    let scope = Afterwards::open();
    drop(scope);
    // Whoever holds the lease keeps the slot, so nobody else meets the request before it ends.
    let (ticket, lease) = scene.lead(to(&scene, &follower, 2));
    ticket.cancel();
    assert_eq!(follower.not_left(), 2);
    drop(lease);
}

#[test]
fn whoever_brings_answers_in_another_way_opens_a_scope() {
    let scene = Scene::keeping(echo_spec());
    let seen = Arc::new(Mutex::new(Vec::<(u64, ThreadId)>::new()));
    let follower = {
        let seen = seen.clone();
        Follower::new(move |mail| {
            let me = thread::current().id();
            seen.lock().expect("no panic").extend(mail.iter().map(|mail| (mail.key, me)));
        })
    };
    scene.puppet.script([Act::Late, Act::Late]);
    for key in [1, 2] {
        let (_, lease) = scene.lead(to(&scene, &follower, key));
        lease.map(drive);
    }
    let outer = Afterwards::open();
    for _ in 0..2 {
        let _inner = Afterwards::open();
        scene.puppet.late().scatter(&[Some(int32(&[1, 1], [1]))]);
    }
    assert!(seen.lock().expect("no panic").is_empty(), "the outermost scope is open");
    drop(outer);
    let me = thread::current().id();
    assert_eq!(*seen.lock().expect("no panic"), [(1, me), (2, me)]);
}

#[test]
fn a_panic_of_one_follower_is_no_harm_to_others() {
    let scene = inline();
    let count = Arc::new(AtomicUsize::new(0));
    let bad = Follower::new(|_| std::panic::resume_unwind(Box::new("told to")));
    let good = {
        let count = count.clone();
        Follower::new(move |mail| {
            count.fetch_add(mail.len(), Ordering::SeqCst);
        })
    };
    for round in 1..=3 {
        let leases: Vec<_> =
            [&bad, &good].iter().filter_map(|follower| scene.lead(to(&scene, follower, 1)).1).collect();
        for lease in leases {
            drive(lease);
        }
        assert_eq!(count.load(Ordering::SeqCst), round);
    }
    assert_eq!(scene.runner.placement(), Placement::Inline);
}

#[test]
fn an_engine_that_takes_its_batches_apart_owes_as_many_requests_as_it_likes() {
    let puppet = PuppetEngine::new(Capability { concurrent: true, inline: false, keeps_slots: true });
    let scene = Scene::on(echo_spec(), puppet);
    scene.puppet.usually(Act::Keep);
    let mut apart = Vec::new();
    for key in 0..30 {
        let (_, lease) = scene.lead(scene.request(key, 1));
        lease.map(drive);
        let (slot, batch) = scene.puppet.kept();
        apart.extend(batch.take_apart());
        drop(slot);
    }
    assert_eq!((apart.len(), scene.letters.unread()), (30, 0));
    for mut alone in apart {
        assert_eq!((alone.len(), alone.rows()), (1, 1));
        alone.end(0, Ok(()));
    }
    assert_eq!(scene.letters.answers(30).len(), 30);
}
