//! The client over gRPC against servers that leave, break off and lie.

mod peer;

use std::sync::mpsc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::Reason;
use kushi_client::{InferCall, RemoteClient, RemoteOptions, TlsOptions};
use kushi_core::ErrorKind;

use self::peer::{Act, Peer, announced, call, infer, message};

fn well() -> Act {
    answer(message(b""))
}

fn answer(bytes: Bytes) -> Act {
    Act::Answer(200, bytes, Some(vec![("grpc-status", "0")]))
}

/// The first call is as scripted, the others are answered.
fn once(act: Act) -> Peer {
    Peer::serve(move |call| if call == 0 { act.clone() } else { well() })
}

#[test]
fn all_calls_share_one_connection() {
    let peer = Peer::serve(|_| well());
    let client = peer.client();
    for _ in 0..10 {
        infer(&client, call(1)).unwrap();
    }
    assert_eq!(peer.calls(), [0; 10]);
}

#[test]
fn a_request_that_is_larger_than_any_window_arrives_whole() {
    let peer = Peer::serve(|_| Act::Echo);
    let client = peer.client();
    for bytes in [0, 1, 16 << 10, (16 << 10) + 1, 3 << 20] {
        let length: usize = infer(&client, call(bytes)).unwrap().id.parse().unwrap();
        assert!(length > bytes + 10 && length < bytes + 64, "{bytes}: {length}");
    }
}

#[test]
fn a_refusal_before_all_was_sent_is_heard() {
    let peer = Peer::serve(|_| Act::RefuseAtOnce);
    let error = infer(&peer.client(), call(8 << 20)).unwrap_err();
    assert_eq!((error.kind, &*error.message), (ErrorKind::Overloaded, "too much"));
}

#[test]
fn a_call_that_a_server_has_not_looked_at_goes_out_again_once() {
    let peer = once(Act::Reset(Reason::REFUSED_STREAM));
    infer(&peer.client(), call(1)).unwrap();
    assert_eq!(peer.calls().len(), 2);
    let peer = Peer::serve(|_| Act::Reset(Reason::REFUSED_STREAM));
    let error = infer(&peer.client(), call(1)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::ConnectionLost);
    assert_eq!(peer.calls().len(), 2);
}

#[test]
fn what_may_have_been_computed_is_not_asked_again() {
    for act in [Act::Drop, Act::Reset(Reason::INTERNAL_ERROR), Act::Reset(Reason::CANCEL)] {
        let peer = once(act);
        let client = peer.client();
        let error = infer(&client, call(1)).unwrap_err();
        assert_eq!(error.kind, ErrorKind::ConnectionLost, "{error}");
        assert_eq!(peer.calls(), [0]);
        infer(&client, call(1)).unwrap();
    }
}

#[test]
fn what_is_no_answer_is_an_error_and_the_client_stays_well() {
    let ok = || Some(vec![("grpc-status", "0")]);
    let two = [message(b""), message(b"")].concat().into();
    for (act, text) in [
        (Act::Answer(200, Bytes::new(), ok()), "it has no message"),
        (Act::Answer(200, message(b""), Some(vec![])), "it has no status"),
        (Act::Answer(200, two, ok()), "it has several messages"),
        (answer(announced(0, 1, b"")), "it is compressed, which was not asked for"),
        (
            answer(announced(u32::MAX, 0, b"abc")),
            "it has more than 1000 bytes, which is the limit of the client",
        ),
        (answer(announced(1001, 0, &[0; 1001])), "it has more than 1000 bytes"),
        (answer(announced(900, 0, b"abc")), "it ends in the midst of a message"),
        (answer(Bytes::from_static(b"\0\0")), "it ends in the midst of a message"),
        (Act::Answer(200, message(b""), None), "it has no status"),
        (answer(message(b"\x0a\x05ab")), "an unreadable answer"),
        (Act::Answer(404, Bytes::new(), Some(vec![])), "answered with the HTTP status 404"),
    ] {
        let peer = once(act);
        let client = peer.client_with(RemoteOptions { max_answer_bytes: 1000, ..RemoteOptions::default() });
        let error = infer(&client, call(1)).unwrap_err();
        assert!(error.message.contains(text), "{error}, expected {text}");
        infer(&client, call(1)).unwrap();
    }
}

#[test]
fn an_answer_that_never_comes_ends_with_the_patience_of_its_call() {
    // Nobody listens to the window of a server that reads nothing: the call stands in the midst of its request.
    let peer = Peer::serve(|call| if call == 0 { Act::Answer(200, Bytes::new(), None) } else { well() });
    let client = peer.client();
    let late = InferCall { patience: Some(Duration::from_millis(200)), ..call(8 << 20) };
    let error = infer(&client, late).unwrap_err();
    assert_eq!(error.kind, ErrorKind::DeadlineExceeded);
    infer(&client, call(1)).unwrap();
}

#[test]
fn calls_that_wait_for_one_connection_hear_together_that_there_is_none() {
    // It takes connections, and never answers the greeting of TLS.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let tls = TlsOptions { insecure: true, ..TlsOptions::default() };
    let connect_patience = Duration::from_millis(300);
    let options = RemoteOptions { connect_patience, tls, ..RemoteOptions::default() };
    let client = RemoteClient::new(&format!("grpcs://{}", silent.local_addr().unwrap()), options).unwrap();
    let (sender, ends) = mpsc::channel();
    let began = Instant::now();
    for _ in 0..100 {
        let sender = sender.clone();
        client.infer(Box::new(call(1)), move |_, answer| drop(sender.send(answer.map(drop))));
    }
    for _ in 0..100 {
        let error = ends.recv_timeout(Duration::from_secs(20)).unwrap().unwrap_err();
        assert!(error.message.contains("no answer in time"), "{error}");
    }
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}
