//! Connections: kept, lost, limited, cancelled, closed.

use std::time::Duration;

use kushi_client::RemoteOptions;
use kushi_core::ErrorKind;

use crate::scripted::{
    Act, Event, Heard, Scripted, ask, begin, end, good_answer, infer, json_answer, small_call,
};

fn inferences(server: &Scripted) -> Vec<Heard> {
    server.heard().into_iter().filter(|heard| heard.path.ends_with("/infer")).collect()
}

#[test]
fn one_connection_serves_call_after_call() {
    let server = Scripted::always(good_answer());
    let client = server.client();
    for _ in 0..20 {
        infer(&client, small_call()).unwrap();
    }
    assert!(server.heard().iter().all(|heard| heard.connection == 0));
}

#[test]
fn a_connection_that_ended_while_idle_costs_no_call() {
    let server = Scripted::binary(|_| Act::Last(good_answer()));
    let client = server.client();
    for call in 0..5 {
        infer(&client, small_call()).unwrap();
        server.wait_for(&Event::Closed(call));
        assert_eq!(inferences(&server).len(), call + 1);
    }
}

#[test]
fn a_server_that_closes_after_each_answer_is_not_asked_twice_what_it_can() {
    let mut last = good_answer();
    let end_of_status = last.windows(2).position(|window| window == b"\r\n").unwrap() + 2;
    last.splice(end_of_status..end_of_status, *b"Connection: foo, Close\r\n");
    let server = Scripted::binary(move |_| Act::Last(last.clone()));
    let client = server.client();
    for _ in 0..3 {
        infer(&client, small_call()).unwrap();
    }
    assert_eq!(server.paths().iter().filter(|path| *path == "/v2").count(), 1);
}

#[test]
fn a_request_that_was_read_is_never_sent_again() {
    for gone in [|| Act::Reset, || Act::Last(Vec::new()), || Act::Last(b"HTTP/1.1 200 OK\r\nconte".to_vec())]
    {
        // Once on the kept connection that brought the extensions, once on a new one.
        let server = Scripted::binary(move |_| gone());
        let client = server.client();
        for call in 1..=2 {
            let lost = infer(&client, small_call()).unwrap_err();
            assert_eq!(lost.kind, ErrorKind::ConnectionLost, "{lost}");
            assert!(
                lost.message.starts_with(&format!("the connection to {} was lost", server.url)),
                "{lost}"
            );
            assert_eq!(inferences(&server).len(), call);
        }
    }
}

#[test]
fn a_lost_connection_makes_the_client_ask_again_what_the_server_can() {
    let server = Scripted::binary(|heard| match heard.connection {
        0 => Act::Reset,
        _ => Act::Answer(good_answer()),
    });
    let client = server.client();
    assert_eq!(infer(&client, small_call()).unwrap_err().kind, ErrorKind::ConnectionLost);
    infer(&client, small_call()).unwrap();
    let seen: Vec<(usize, String)> =
        server.heard().into_iter().map(|heard| (heard.connection, heard.path)).collect();
    let infer = "/v2/models/m/infer";
    assert_eq!(seen, [(0, "/v2"), (0, infer), (1, "/v2"), (1, infer)].map(|(n, path)| (n, path.to_owned())));
}

#[test]
fn no_server_is_a_lost_connection_that_says_what_to_do() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let client =
        kushi_client::RemoteClient::new(&format!("http://{free}"), RemoteOptions::default()).unwrap();
    let lost = infer(&client, small_call()).unwrap_err();
    assert_eq!(lost.kind, ErrorKind::ConnectionLost);
    assert_eq!(
        lost.message,
        format!(
            "cannot connect to http://{free}: nothing listens there; start the server, or give the client its address"
        )
    );
    assert_eq!(ask(&client, "ServerMetadata", "").unwrap_err(), lost);
}

#[test]
fn a_deadline_ends_a_call_that_waits_for_a_slow_server() {
    let server = Scripted::binary(|_| Act::Silence);
    let client = server.client();
    let mut call = small_call();
    // Long enough to connect and to ask, on a busy machine too.
    call.patience = Some(Duration::from_millis(500));
    let late = infer(&client, call).unwrap_err();
    assert_eq!((late.kind, &*late.message), (ErrorKind::DeadlineExceeded, "Request timeout expired"));
    server.wait_for(&Event::Closed(0));
}

#[test]
fn a_call_that_is_late_already_is_not_sent() {
    let server = Scripted::always(good_answer());
    let mut call = small_call();
    call.patience = Some(Duration::ZERO);
    assert_eq!(infer(&server.client(), call).unwrap_err().kind, ErrorKind::DeadlineExceeded);
    assert_eq!(server.paths(), Vec::<String>::new());
}

#[test]
fn a_deadline_covers_the_wait_for_a_connection_and_for_the_extensions() {
    let server = Scripted::serve(|_| Act::Silence);
    let client = server.client_with(RemoteOptions { max_connections: 1, ..RemoteOptions::default() });
    let (_, first) = begin(&client, small_call());
    server.wait_for(&Event::Asked(0, "/v2".into()));
    let mut call = small_call();
    call.patience = Some(Duration::from_millis(20));
    assert_eq!(infer(&client, call).unwrap_err().kind, ErrorKind::DeadlineExceeded);
    client.close();
    assert_eq!(end(&first).unwrap_err().kind, ErrorKind::ConnectionLost);
}

#[test]
fn a_cancelled_call_closes_its_connection_and_no_other() {
    let server = Scripted::binary(|heard| match &heard.body[..] {
        [.., 99] => Act::Silence,
        _ => Act::Answer(good_answer()),
    });
    let client = server.client();
    let mut slow = small_call();
    slow.inputs[0].tensor.data = kushi_core::Buffer::host(vec![99]);
    let (ticket, pending) = begin(&client, slow);
    server.wait_for(&Event::Asked(0, "/v2/models/m/infer".into()));
    infer(&client, small_call()).unwrap();
    client.cancel(ticket);
    let cancelled = end(&pending).unwrap_err();
    assert_eq!((cancelled.kind, &*cancelled.message), (ErrorKind::Cancelled, ""));
    server.wait_for(&Event::Closed(0));
    infer(&client, small_call()).unwrap();
    assert_eq!(inferences(&server).last().unwrap().connection, 1);
    client.cancel(ticket);
    infer(&client, small_call()).unwrap();
}

#[test]
fn a_call_may_be_cancelled_before_it_has_begun() {
    let server = Scripted::binary(|_| Act::Silence);
    let client = server.client();
    for _ in 0..100 {
        let (ticket, pending) = begin(&client, small_call());
        client.cancel(ticket);
        assert_eq!(end(&pending).unwrap_err().kind, ErrorKind::Cancelled);
    }
}

#[test]
fn connections_are_limited_and_further_calls_wait_their_turn() {
    let server = Scripted::binary(|heard| match &heard.body[..] {
        [.., 99] => Act::Silence,
        _ => Act::Answer(good_answer()),
    });
    let client = server.client_with(RemoteOptions { max_connections: 2, ..RemoteOptions::default() });
    let mut slow = small_call();
    slow.inputs[0].tensor.data = kushi_core::Buffer::host(vec![99]);
    let (first, _) = begin(&client, slow.clone());
    let (second, _) = begin(&client, slow);
    server.wait_for(&Event::Opened(1));
    let waiting: Vec<_> = (0..10).map(|_| begin(&client, small_call()).1).collect();
    client.cancel(first);
    for pending in &waiting {
        end(pending).unwrap();
    }
    client.cancel(second);
    let connections = server.heard().iter().map(|heard| heard.connection).max();
    assert_eq!(connections, Some(2));
}

#[test]
fn closing_ends_what_is_under_way_and_what_comes_later() {
    let server = Scripted::binary(|_| Act::Silence);
    let client = server.client();
    let pending: Vec<_> = (0..3).map(|_| begin(&client, small_call()).1).collect();
    server.wait_for(&Event::Asked(0, "/v2/models/m/infer".into()));
    client.close();
    for pending in &pending {
        let ended = end(pending).unwrap_err();
        assert_eq!((ended.kind, &*ended.message), (ErrorKind::ConnectionLost, "the client is closed"));
    }
    server.wait_for(&Event::Closed(0));
    assert_eq!(infer(&client, small_call()).unwrap_err().message, "the client is closed");
    assert_eq!(ask(&client, "ServerMetadata", "").unwrap_err().message, "the client is closed");
    client.close();
}

#[test]
fn a_dropped_client_ends_its_calls() {
    let server = Scripted::binary(|_| Act::Silence);
    let client = server.client();
    let (_, pending) = begin(&client, small_call());
    server.wait_for(&Event::Asked(0, "/v2/models/m/infer".into()));
    drop(client);
    assert_eq!(end(&pending).unwrap_err().message, "the client is closed");
}

#[test]
fn an_answer_that_comes_before_the_request_is_read_is_heard() {
    let server = Scripted::serve(|heard| match heard.path.as_str() {
        "/v2" => Act::Answer(json_answer(200, r#"{"extensions":["binary_tensor_data"]}"#)),
        _ => Act::Answer(json_answer(400, r#"{"error":"no"}"#)),
    });
    let client = server.client();
    for _ in 0..3 {
        let mut call = small_call();
        call.inputs[0].tensor.data = kushi_core::Buffer::host(vec![1; 4 << 20]);
        assert_eq!(infer(&client, call).unwrap_err().message, "no");
    }
}

#[test]
fn the_call_comes_back_with_its_end() {
    let server = Scripted::always(good_answer());
    let client = server.client();
    let (sender, receiver) = std::sync::mpsc::channel();
    let mut call = small_call();
    call.id = "mine".into();
    client.infer(Box::new(call), move |call, answer| drop(sender.send((call.id, answer.is_ok()))));
    assert_eq!(receiver.recv().unwrap(), ("mine".to_owned(), true));
}
