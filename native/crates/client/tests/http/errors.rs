//! Refusals: which kind they become, with the text as it came.

use kushi_core::{Error, ErrorKind};

use crate::scripted::{Act, Scripted, answer, infer, json_answer, small_call};

fn refusal(bytes: Vec<u8>) -> (String, Error) {
    let server = Scripted::always(bytes);
    let error = infer(&server.client(), small_call()).unwrap_err();
    (server.url, error)
}

#[test]
fn our_own_server_names_the_kind() {
    for kind in ErrorKind::ALL {
        let header = format!("kushi-error: {}\r\n", kind.name());
        let (_, error) = refusal(answer(kind.http_status(), &header, br#"{"error":"Text."}"#));
        let expected = if kind == ErrorKind::Cancelled { ErrorKind::ShuttingDown } else { kind };
        assert_eq!((error.kind.name(), &*error.message), (expected.name(), "Text."));
    }
}

#[test]
fn status_and_text_tell_the_kind_of_other_servers() {
    use ErrorKind as K;
    for (status, text, kind) in [
        (400, "unexpected inference input 'X' for model 'm'", K::InvalidInput),
        (401, "who are you", K::AccessDenied),
        (403, "This API is restricted, expecting header 'k'", K::AccessDenied),
        (413, "too much", K::InvalidInput),
        (404, "Request for unknown model: 'm' is not found", K::ModelNotFound),
        (405, "Method Not Allowed", K::Unsupported),
        (408, "too late", K::DeadlineExceeded),
        (429, "slow down", K::Overloaded),
        (499, "Request timeout expired", K::DeadlineExceeded),
        (500, "Failed to process the request(s)", K::EngineFailed),
        (501, "HTTP end point doesn't support models with decoupled transaction policy", K::Unsupported),
        (502, "no upstream", K::ConnectionLost),
        (503, "[request id: 7] Exceeds maximum queue size", K::Overloaded),
        (503, "[request id: 7] Request timeout expired", K::DeadlineExceeded),
        (503, "Request for unknown model: 'm' version 1 is not at ready state", K::ModelNotReady),
        (503, "Request for unknown model: 'm' has no available versions", K::ModelNotFound),
        (
            503,
            "Server is stopping, scheduler for model has stopped accepting new inference requests",
            K::ShuttingDown,
        ),
        (503, "something else", K::Overloaded),
        (504, "upstream is slow", K::DeadlineExceeded),
    ] {
        let (_, error) = refusal(json_answer(status, &format!(r#"{{"error":"{text}"}}"#)));
        assert_eq!((error.kind, &*error.message), (kind, text));
    }
}

#[test]
fn a_redirect_is_named_and_not_followed() {
    let (url, error) = refusal(answer(308, "location: http://elsewhere/v2\r\n", b""));
    assert_eq!(error.kind, ErrorKind::Unsupported);
    assert_eq!(
        error.message,
        format!(
            "{url} redirects to 'http://elsewhere/v2', which is not followed: give the client the address of the server"
        )
    );
}

#[test]
fn a_body_that_is_no_error_of_the_protocol_is_shown_in_part() {
    let html = format!("<html>\n  <h1>Bad\tGateway</h1>{}", "x".repeat(1000));
    let (url, error) = refusal(answer(502, "", html.as_bytes()));
    assert_eq!(error.kind, ErrorKind::ConnectionLost);
    let start = format!(
        "{url} answered with the status 502 Bad Gateway and no error of the protocol: <html> <h1>Bad Gateway</h1>xx"
    );
    assert!(error.message.starts_with(&start), "{error}");
    assert!(error.message.len() < 400);
    let (url, error) = refusal(json_answer(500, r#"{"error":7}"#));
    assert_eq!(
        error.message,
        format!(
            "{url} answered with the status 500 Internal Server Error and no error of the protocol: {{\"error\":7}}"
        )
    );
}

#[test]
fn a_success_that_is_none_is_refused() {
    let (url, error) = refusal(answer(204, "", b""));
    assert_eq!(error.kind, ErrorKind::EngineFailed);
    assert_eq!(error.message, format!("{url} answered with the status 204 No Content and no text"));
}

#[test]
fn refusals_of_the_metadata_are_those_of_the_call() {
    let server = Scripted::serve(|_| Act::Answer(json_answer(503, r#"{"error":"Server not ready"}"#)));
    let error = infer(&server.client(), small_call()).unwrap_err();
    assert_eq!((error.kind, &*error.message), (ErrorKind::Overloaded, "Server not ready"));
}
