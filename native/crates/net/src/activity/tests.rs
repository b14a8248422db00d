//! One connection, look by look.

use super::*;

const LONG: Duration = Duration::from_secs(3600);

fn look(activity: &Activity, seconds: u64) -> Look {
    activity.look(Duration::from_secs(seconds), &Limits::default())
}

/// At a stage of which the last look has seen the beginning.
fn at(stage: Stage) -> Activity {
    let activity = Activity::new(false);
    activity.enter(stage);
    assert_eq!(look(&activity, 1000), Look::Moved);
    activity
}

#[test]
fn each_stage_has_its_patience() {
    for (stage, seconds) in [(Stage::Idle, 75), (Stage::Head, 10), (Stage::Body, 30), (Stage::Drain, 10)] {
        let activity = at(stage);
        assert_eq!(look(&activity, seconds - 1), Look::Patience, "{stage:?}");
        assert_eq!(look(&activity, seconds), Look::Overdue, "{stage:?}");
    }
    let activity = at(Stage::Work);
    assert_eq!(activity.look(LONG, &Limits::default()), Look::Patience);
    activity.set_blocked(true);
    assert_eq!(look(&activity, 0), Look::Moved);
    assert_eq!(look(&activity, 30), Look::Overdue);
    assert!(activity.is_lost());
}

#[test]
fn a_client_that_takes_nothing_gains_no_time_where_its_requests_end() {
    let activity = at(Stage::Work);
    activity.set_blocked(true);
    assert_eq!(look(&activity, 0), Look::Moved);
    activity.enter(Stage::Idle);
    assert_eq!(look(&activity, 29), Look::Patience);
    activity.enter(Stage::Work);
    assert_eq!(look(&activity, 30), Look::Overdue);
    activity.set_blocked(false);
    assert_eq!(look(&activity, 30), Look::Moved);
}

#[test]
fn what_is_said_of_a_late_head_is_not_said_within_an_answer() {
    let activity = Activity::new(false);
    activity.has_read(&[0]);
    assert!(activity.misses_head());
    activity.set_blocked(true);
    assert!(!activity.misses_head());
}

#[test]
fn an_answer_is_owed_from_when_it_is_found_until_it_has_been_written() {
    let activity = Activity::new(false);
    assert!(activity.owes_nothing());
    activity.enter(Stage::Work);
    assert!(!activity.owes_nothing());
    activity.enter(Stage::Idle);
    activity.has_answered();
    activity.has_flushed();
    assert!(!activity.owes_nothing(), "pieces are to come");
    activity.has_given_all();
    assert!(!activity.owes_nothing());
    activity.set_blocked(true);
    activity.has_flushed();
    assert!(!activity.owes_nothing(), "a part has left");
    activity.set_blocked(false);
    assert!(activity.owes_nothing());
}

#[test]
fn bytes_prolong_a_body_and_not_a_head() {
    let activity = Activity::new(false);
    activity.has_read(&vec![0; 1000]);
    assert_eq!((activity.stage(), look(&activity, 0)), (Stage::Head, Look::Moved));
    activity.has_read(&vec![0; 1 << 20]);
    assert_eq!(look(&activity, 10), Look::Overdue);
    activity.enter(Stage::Body);
    assert!(!activity.take_overdue());
    assert_eq!(look(&activity, 0), Look::Moved);
    activity.has_read(&vec![0; 1 << 20]);
    assert_eq!(look(&activity, 40), Look::Moved);
    assert_eq!(look(&activity, 29), Look::Patience, "they count once");
}

#[test]
fn a_body_that_comes_too_slowly_is_overdue() {
    let activity = at(Stage::Body);
    let least = Limits::default().least_body_bytes();
    activity.has_read(&vec![0; least - 1]);
    assert_eq!(look(&activity, 29), Look::Patience);
    activity.has_read(&[0]);
    assert_eq!(look(&activity, 29), Look::Moved, "what comes in several reads is added up");
    activity.has_read(&vec![0; least - 1]);
    assert_eq!(look(&activity, 30), Look::Overdue);
    assert!(!activity.is_lost(), "it is answered");
    assert!(activity.take_overdue());
}

#[test]
fn a_client_that_has_left_is_not_served_and_what_it_sent_is_read() {
    for (stage, lost) in
        [(Stage::Head, false), (Stage::Body, false), (Stage::Work, true), (Stage::Idle, false)]
    {
        let activity = at(stage);
        activity.set_deserted();
        assert_eq!(activity.is_lost(), lost, "{stage:?}");
    }
}

#[test]
fn a_byte_prolongs_what_is_left_of_a_refused_body() {
    let activity = at(Stage::Drain);
    activity.has_read(&[0]);
    assert_eq!(look(&activity, 100), Look::Moved);
    assert_eq!(look(&activity, 10), Look::Overdue);
    activity.has_drained();
    assert_eq!((activity.stage(), activity.is_lost()), (Stage::Idle, false));
    activity.has_read(&[0]);
    activity.has_drained();
    assert_eq!(activity.stage(), Stage::Head, "the next request has begun");
}

#[test]
fn only_a_silent_connection_is_dismissed() {
    for stage in [Stage::Head, Stage::Body, Stage::Work, Stage::Drain] {
        assert!(!at(stage).dismiss(), "{stage:?}");
    }
    assert!(!Activity::new(false).dismiss(), "it has been used since the last look");
    let over_limit = Activity::new(true);
    look(&over_limit, 0);
    assert!(!over_limit.dismiss(), "it has no place to give");
    let activity = at(Stage::Idle);
    assert!(activity.dismiss());
    assert!(!activity.dismiss(), "for one that comes");
    assert!(activity.is_lost());
    activity.has_read(&[0]);
    assert!(!activity.is_lost(), "a request has come meanwhile");
}

#[test]
fn a_silent_connection_rests_once_after_a_large_request() {
    let activity = at(Stage::Idle);
    activity.has_read(&vec![0; SWELLS_BYTES]);
    activity.enter(Stage::Idle);
    assert!(!activity.take_rest(), "it has just been used");
    assert_eq!(look(&activity, 1), Look::Moved);
    assert_eq!(look(&activity, 1), Look::Rest);
    assert!(activity.take_rest());
    assert_eq!(look(&activity, 2), Look::Patience);
    activity.has_read(&vec![0; SWELLS_BYTES]);
    activity.enter(Stage::Idle);
    look(&activity, 1);
    assert_eq!(look(&activity, 1), Look::Rest);
    activity.has_read(&[0]);
    assert!(!activity.take_rest(), "a request has come meanwhile");
}
