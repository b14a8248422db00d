//! Callers that wait, over real sockets.

use std::ops::ControlFlow;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use kushi_client::local::{Door, Streams};
use kushi_client::{Answer, Call};
use kushi_core::{Error, ErrorKind};
use kushi_oip::{CallAnswer, Kind, PROTOCOL};

use crate::peer::{MS, Peer, call_with};

struct Site {
    folder: PathBuf,
    door: Arc<Door>,
    streams: Arc<Streams>,
}

impl Site {
    fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("kushi-client-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).unwrap();
        let door = Door::new(folder.join("door"));
        let streams = Arc::new(Streams::new(door.clone()));
        Self { folder, door, streams }
    }

    fn listen(&self) -> UnixListener {
        let _ = std::fs::remove_file(self.door.path());
        UnixListener::bind(self.door.path()).unwrap()
    }

    fn infer(&self) -> Result<Answer, Error> {
        self.infer_within(None)
    }

    fn infer_within(&self, patience: Option<Duration>) -> Result<Answer, Error> {
        let mut call = call_with(vec![1]);
        call.patience = patience;
        self.streams.infer(&call, &|| ControlFlow::Continue(()))
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Accepts a connection and answers so many calls on it.
fn serve(listener: &UnixListener, calls: usize) -> Peer {
    let mut peer = accept(listener);
    for _ in 0..calls {
        let (id, _) = peer.next_infer();
        peer.answer(id, b"y");
    }
    peer
}

fn accept(listener: &UnixListener) -> Peer {
    let mut peer = Peer::new(listener.accept().unwrap().0);
    peer.hello(PROTOCOL);
    assert_eq!(peer.next().kind, Kind::Hello);
    peer
}

/// Shows that it lives until a call is given up, and answers which.
fn next_cancel(peer: &mut Peer) -> u64 {
    let frame = peer.next_but_pings();
    assert_eq!(frame.kind, Kind::Cancel);
    frame.id
}

#[test]
fn a_stream_serves_one_call_after_the_other() {
    let site = Site::new();
    let listener = site.listen();
    let server = thread::spawn(move || {
        let mut peer = serve(&listener, 3);
        let frame = peer.next_but_pings();
        assert_eq!(frame.kind, Kind::Call);
        peer.say(Kind::CallAnswer, frame.id, &CallAnswer { status: 200, ..CallAnswer::default() });
        peer
    });
    for _ in 0..3 {
        assert_eq!(site.infer().unwrap().outputs[0].1.data.as_bytes(), b"y");
    }
    let call = Call { verb: "ServerMetadata".into(), ..Call::default() };
    assert_eq!(site.streams.call(&call, &|| ControlFlow::Continue(())).unwrap().status, 200);
    server.join().unwrap();
}

#[test]
fn calls_at_the_same_time_have_streams_of_their_own() {
    let site = Site::new();
    let listener = site.listen();
    thread::scope(|scope| {
        let callers = [(); 4].map(|()| scope.spawn(|| site.infer().unwrap()));
        let mut peers: Vec<Peer> = (0..4).map(|_| accept(&listener)).collect();
        for peer in &mut peers {
            let (id, _) = peer.next_infer();
            peer.answer(id, b"y");
        }
        for caller in callers {
            caller.join().unwrap();
        }
    });
}

#[test]
fn a_server_that_was_started_again_is_found_by_the_next_call() {
    let site = Site::new();
    for _ in 0..3 {
        let listener = site.listen();
        let server = thread::spawn(move || drop(serve(&listener, 1)));
        site.infer().unwrap();
        server.join().unwrap();
    }
}

#[test]
fn without_a_server_the_error_says_what_to_do() {
    let site = Site::new();
    let error = site.infer().unwrap_err();
    assert_eq!(error.kind, ErrorKind::ConnectionLost);
    assert!(error.message.contains("kushi serve --local-socket="), "{error}");
    drop(site.listen());
    let error = site.infer().unwrap_err();
    assert_eq!(error.kind, ErrorKind::ConnectionLost);
    assert!(error.message.contains("has ended"), "{error}");
    let far = Door::new(PathBuf::from("/x".repeat(100)));
    let error = Streams::new(far).infer(&call_with(vec![]), &|| ControlFlow::Continue(())).unwrap_err();
    assert_eq!(error.kind, ErrorKind::ConnectionLost, "{error}");
}

#[test]
fn a_call_that_was_sent_is_not_sent_again() {
    let site = Site::new();
    let listener = site.listen();
    let server = thread::spawn(move || {
        accept(&listener).next_infer();
        listener
    });
    assert_eq!(site.infer().unwrap_err().kind, ErrorKind::ConnectionLost);
    let listener = server.join().unwrap();
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "nobody has come again");
}

#[test]
fn a_frozen_server_is_given_up() {
    let site = Site::new();
    let listener = site.listen();
    let error = site.infer().unwrap_err();
    assert_eq!(error.kind, ErrorKind::ConnectionLost);
    assert!(error.message.contains("does not answer"), "{error}");
    drop(listener);
}

#[test]
fn a_deadline_ends_the_call_and_the_stream_goes_on() {
    // Long enough to connect and to send, on a busy machine too.
    const PATIENCE: Duration = Duration::from_millis(300);
    let site = Site::new();
    let listener = site.listen();
    let server = thread::spawn(move || {
        let mut peer = accept(&listener);
        let (late, request) = peer.next_infer();
        assert!((1..=300_000).contains(&request.timeout_us));
        assert_eq!(next_cancel(&mut peer), late);
        let (next, _) = peer.next_infer();
        peer.answer(late, b"late");
        peer.answer(next, b"y");
        peer
    });
    let error = site.infer_within(Some(PATIENCE)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::DeadlineExceeded);
    assert_eq!(site.infer().unwrap().outputs[0].1.data.as_bytes(), b"y");
    server.join().unwrap();
}

#[test]
fn a_deadline_covers_the_wait_for_a_connection() {
    let site = Site::new();
    let listener = site.listen();
    rustix::net::listen(&listener, 0).unwrap();
    // Until the server takes one no other fits.
    let first: Result<_, Error> = site.door.connect::<()>(None);
    let waiting = first.unwrap();
    let error = site.infer_within(Some(Duration::from_millis(20))).unwrap_err();
    assert_eq!(error.kind, ErrorKind::DeadlineExceeded, "{error}");
    let error = site.door.connect::<()>(None).map(|_| ()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::ConnectionLost);
    drop(waiting);
}

#[test]
fn a_caller_that_is_interrupted_gives_its_call_up() {
    let site = Site::new();
    let listener = site.listen();
    let server = thread::spawn(move || {
        let mut peer = accept(&listener);
        let (id, _) = peer.next_infer();
        assert_eq!(next_cancel(&mut peer), id);
        peer
    });
    let interrupted = site.streams.infer(&call_with(vec![1]), &|| ControlFlow::Break(()));
    assert_eq!(interrupted.unwrap_err().kind, ErrorKind::Cancelled);
    server.join().unwrap();
}

#[test]
fn a_caller_that_was_kept_from_looking_does_not_give_a_living_server_up() {
    let site = Site::new();
    let listener = site.listen();
    let (busy, is_busy) = mpsc::channel();
    let server = thread::spawn(move || {
        let mut peer = accept(&listener);
        // Long enough to be asked for a sign of life, which waits behind the call.
        thread::sleep(400 * MS);
        peer.take_in(190_000);
        is_busy.recv().unwrap();
        peer.say_nothing(Kind::Pong, 0);
        let (id, _) = peer.next_infer();
        peer.answer(id, b"alive");
        peer
    });
    let mut call = call_with(vec![0; 60_000]);
    call.inputs = std::iter::repeat_n(call.inputs[0].clone(), 20).collect();
    let (began, was_busy) = (Instant::now(), AtomicBool::new(false));
    let answer = site.streams.infer(&call, &|| {
        if began.elapsed() > 300 * MS && !was_busy.swap(true, Ordering::Relaxed) {
            // Other threads have the interpreter.
            busy.send(()).unwrap();
            thread::sleep(800 * MS);
        }
        ControlFlow::Continue(())
    });
    assert_eq!(answer.unwrap().outputs[0].1.data.as_bytes(), b"alive");
    server.join().unwrap();
}

#[test]
fn closing_the_client_ends_calls_in_flight_and_refuses_others() {
    let site = Site::new();
    let listener = site.listen();
    thread::scope(|scope| {
        let caller = scope.spawn(|| site.infer().unwrap_err());
        let mut peer = accept(&listener);
        peer.next_infer();
        site.door.close();
        let error = caller.join().unwrap();
        assert_eq!((error.kind, &*error.message), (ErrorKind::ConnectionLost, "the client is closed"));
        while peer.try_next().is_some() {}
    });
    let error = site.infer().unwrap_err();
    assert_eq!(&*error.message, "the client is closed");
}
