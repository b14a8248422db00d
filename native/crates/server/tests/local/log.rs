//! What clients can have written to the log.

use std::sync::atomic::{AtomicUsize, Ordering};

use kushi_oip::{Hello, Kind};

use crate::client::{Client, frame};
use crate::site::Site;

/// Counts what is said of clients that broke the protocol in this way.
struct Ear(AtomicUsize);

const UNKNOWN_PROTOCOL: u32 = 4242;

impl ::log::Log for Ear {
    fn enabled(&self, _: &::log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &::log::Record<'_>) {
        if record.args().to_string().contains(&UNKNOWN_PROTOCOL.to_string()) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn flush(&self) {}
}

#[test]
fn many_clients_that_break_the_protocol_are_one_line_of_the_log() {
    static EAR: Ear = Ear(AtomicUsize::new(0));
    ::log::set_logger(&EAR).unwrap_or_else(|error| panic!("{error}"));
    ::log::set_max_level(::log::LevelFilter::Warn);
    let site = Site::default();
    for _ in 0..100 {
        let mut client = Client::connect(&site.path);
        client.frame().unwrap();
        client.send(&frame(Kind::Hello, 0, &Hello { protocol: UNKNOWN_PROTOCOL, version: String::new() }));
        assert!(client.last_words().is_some_and(|words| words.contains("protocol 4242")));
    }
    assert_eq!(EAR.0.load(Ordering::Relaxed), 1);
}
