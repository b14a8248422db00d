//! What an event loop does, on the thread of a test.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use bytes::Bytes;
use kushi_client::relay::{Connection, Destination, Failure, Interest, Refused, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Protects a test from hanging; nothing waits for it to pass.
const PATIENCE: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };

/// A connection, and a server that has the other end.
pub fn pair() -> (Connection, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (connection(ours), theirs)
}

pub fn connection(stream: UnixStream) -> Connection {
    stream.set_nonblocking(true).unwrap();
    Connection::new(OwnedFd::from(stream), None)
}

pub fn request(
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
    is_complete: bool,
) -> Result<Request, Refused> {
    let headers = headers.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    let body = Bytes::copy_from_slice(body);
    Request::new(method, &[path.as_bytes()], headers, &Destination::default(), body, is_complete)
}

pub fn get() -> Request {
    request("GET", "/v2", &[], b"", true).unwrap()
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// Goes on until `until` holds.
pub fn drive(connection: &mut Connection, until: impl Fn(&Connection) -> bool) {
    let mut interest = connection.drive(true);
    while !until(connection) {
        interest = wait(connection, interest);
    }
}

fn wait(connection: &mut Connection, interest: Interest) -> Interest {
    if interest.turn {
        return connection.drive(false);
    }
    let mut flags = PollFlags::empty();
    flags.set(PollFlags::IN, interest.bytes);
    flags.set(PollFlags::OUT, interest.room);
    assert!(!flags.is_empty(), "it waits for nothing");
    let mut polled = [PollFd::from_borrowed_fd(connection.descriptor(), flags)];
    assert!(poll(&mut polled, Some(&PATIENCE)).unwrap() > 0, "nothing has happened");
    connection.drive(true)
}

/// The answer to what was asked.
pub fn answer(connection: &mut Connection) -> Result<Answer, Failure> {
    drive(connection, |connection| connection.has_head() || connection.failure_of_answer().is_some());
    let mut answer = Answer::default();
    if let Some(head) = connection.take_head() {
        answer.status = head.status;
        let pairs =
            head.headers().map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
        answer.headers = pairs.collect();
    }
    loop {
        if let Some(failure) = connection.failure_of_answer() {
            return Err(failure);
        }
        answer.body.extend(connection.take_body().flatten());
        if connection.is_whole() {
            return Ok(answer);
        }
        drive(connection, |connection| {
            connection.has_body() || connection.is_whole() || connection.failure_of_answer().is_some()
        });
    }
}
