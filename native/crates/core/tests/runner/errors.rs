//! The one table of errors.

use kushi_core::{ErrorKind, FailureReason};

#[test]
fn every_kind_is_in_the_table_under_the_name_of_its_python_class() {
    let names = ErrorKind::ALL.map(ErrorKind::name);
    let expected = [
        "invalid_input",
        "invalid_input",
        "invalid_input",
        "model_not_found",
        "access_denied",
        "model_not_found",
        "model_not_ready",
        "model_not_ready",
        "model_unavailable",
        "model_unavailable",
        "overloaded",
        "deadline_exceeded",
        "engine_failed",
        "unsupported",
        "unsupported",
        "invalid_input",
        "shutting_down",
        "cancelled",
        "invalid_input",
        "invalid_input",
        "connection_lost",
        "config_invalid",
        "config_invalid",
        "internal_error",
    ];
    assert_eq!(names, expected);
    for (place, kind) in ErrorKind::ALL.into_iter().enumerate() {
        assert_eq!(ErrorKind::named(kind.name()).map(ErrorKind::name), Some(kind.name()));
        assert_eq!(kind as usize, place, "{kind:?} stands where it is declared, and none is left out");
    }
}

#[test]
fn a_kind_is_found_by_its_name_and_status() {
    assert_eq!(ErrorKind::find("model_not_found", 500), Some(ErrorKind::NotInRepository));
    assert_eq!(ErrorKind::find("model_not_found", 404), Some(ErrorKind::ModelNotFound));
    assert_eq!(ErrorKind::find("model_not_found", 418), Some(ErrorKind::ModelNotFound));
    assert_eq!(ErrorKind::find("mischief", 500), None);
}

#[test]
fn what_may_be_tried_again_says_that_the_server_is_unavailable() {
    for kind in ErrorKind::ALL.into_iter().filter(|kind| kind.retryable()) {
        assert_eq!(kind.http_status(), 503, "{kind:?}");
    }
}

#[test]
fn failure_reasons_count_in_places_of_their_own() {
    assert_eq!(FailureReason::ALL.map(|reason| reason as usize), [0, 1, 2, 3]);
    assert_eq!(ErrorKind::Overloaded.failure_reason().label(), "REJECTED");
    assert_eq!(ErrorKind::DeadlineExceeded.failure_reason().label(), "REJECTED");
    assert_eq!(ErrorKind::Cancelled.failure_reason().label(), "CANCELED");
    assert_eq!(ErrorKind::EngineFailed.failure_reason().label(), "BACKEND");
}
