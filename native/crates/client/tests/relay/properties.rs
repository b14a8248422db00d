//! Whatever clients and servers do: an answer belongs to who has asked, and a connection that is used
//! again is clean.

use std::os::unix::net::UnixStream;
use std::sync::Arc;

use kushi_client::relay::{Connection, Failure, Request};
use proptest::prelude::*;

use crate::driver::{answer, connection, drive, request};
use crate::server::{Complaints, serve};

#[derive(Clone, Debug)]
struct Asked {
    act: &'static str,
    has_length: bool,
    pieces: Vec<usize>,
    /// How many bytes more or less than announced come.
    error: i64,
    /// Leaves behind so many pieces.
    leaves_after: Option<usize>,
}

const ACTS: [&str; 10] = [
    "answer",
    "chunks",
    "interim",
    "early",
    "early and gone",
    "close",
    "gone",
    "too much",
    "too little",
    "silence",
];

prop_compose! {
    fn asked()(
        act in prop::sample::select(&ACTS[..]),
        has_length: bool,
        pieces in prop::collection::vec(prop_oneof![0..20usize, 1000..200_000usize], 0..5),
        error in prop_oneof![6 => Just(0i64), 1 => Just(-1), 1 => Just(1)],
        leaves_after in prop_oneof![4 => Just(None), 1 => (0..4usize).prop_map(Some)],
    ) -> Asked {
        Asked { act, has_length, pieces, error, leaves_after }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn every_answer_belongs_to_who_has_asked(all in prop::collection::vec(asked(), 1..20)) {
        let complaints = Complaints::default();
        let mut servers = Vec::new();
        let mut kept: Option<Connection> = None;
        let mut may_have_gone = false;
        for (number, asked) in all.iter().enumerate() {
            let id = format!("id-{number}");
            let Some(request) = begun(asked, &id) else { continue };
            let mut line = kept.take().unwrap_or_else(|| {
                let (ours, theirs) = UnixStream::pair().unwrap();
                servers.push(serve(theirs, Arc::clone(&complaints)));
                connection(ours)
            });
            match exchange(&mut line, request, asked) {
                Some(Ok(body)) => prop_assert_eq!(body, id),
                Some(Err(failure)) => {
                    prop_assert!(may_have_gone || !must_succeed(asked), "{:?} {:?}", failure, asked);
                }
                None => {}
            }
            // Of some ends nobody is told before the next request.
            may_have_gone = line.is_idle() && matches!(asked.act, "gone" | "early and gone");
            if line.is_idle() {
                kept = Some(line);
            }
        }
        drop(kept);
        for server in servers {
            server.join().unwrap();
        }
        prop_assert_eq!(&*complaints.lock().unwrap(), &Vec::<String>::new());
    }
}

fn must_succeed(asked: &Asked) -> bool {
    let is_whole = asked.error == 0 || !asked.has_length;
    is_whole && matches!(asked.act, "answer" | "chunks" | "interim" | "close" | "gone")
}

/// `None`: it is refused.
fn begun(asked: &Asked, id: &str) -> Option<Request> {
    let length = asked.pieces.iter().sum::<usize>();
    let announced = length.saturating_add_signed(asked.error as isize).to_string();
    let mut headers = vec![("x-id", id), ("x-do", asked.act)];
    if asked.has_length {
        headers.push(("content-length", &announced));
    }
    let first = asked.pieces.first().copied().unwrap_or(0);
    request("POST", "/v2", &headers, &vec![b'b'; first], asked.pieces.len() <= 1).ok()
}

/// `None`: nobody waited for the answer.
fn exchange(line: &mut Connection, request: Request, asked: &Asked) -> Option<Result<String, Failure>> {
    let rest = asked.pieces.get(1..).unwrap_or_default();
    line.ask(request);
    drive(line, |_| true);
    for (place, piece) in rest.iter().enumerate() {
        if asked.leaves_after == Some(place) {
            return None;
        }
        line.push(vec![b'b'; *piece].into(), place + 1 == rest.len());
        drive(line, |line| line.has_room() || line.has_head() || line.failure_of_answer().is_some());
    }
    let answer = answer(line);
    // A server that has closed its end is noticed before the next request.
    drive(line, |_| true);
    Some(answer.map(|answer| String::from_utf8(answer.body).unwrap()))
}
