//! Clients that break the protocol end their own connection and nothing else.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use bytes::BytesMut;
use kushi_core::DataType;
use kushi_oip::{Call, Hello, Kind, Release, SlotRange, write_frame, write_header};
use kushi_shm::Slot;
use kushi_testkit::{echo_spec, until};
use proptest::prelude::*;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::client::{Client, frame, hello, request, request_in, slot_frame};
use crate::options::options;
use crate::site::{Site, echo_of, mapped_slots, open_descriptors};

fn empty_frame(kind: Kind, id: u64) -> BytesMut {
    let mut bytes = BytesMut::new();
    write_frame(&mut bytes, kind, id, b"");
    bytes
}

fn with_body(kind: Kind, body: &[u8]) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    write_frame(&mut bytes, kind, 0, body);
    bytes.to_vec()
}

/// One of every frame that a client may send, with a slot.
fn conversation(slot: &Slot) -> Vec<BytesMut> {
    vec![
        hello(),
        slot_frame(slot.id(), slot.len()),
        frame(Kind::Infer, 1, &request_in(slot, 0, 16)),
        frame(Kind::Infer, 2, &request(1)),
        empty_frame(Kind::Cancel, 2),
        frame(Kind::Call, 3, &Call { verb: "ServerMetadata".into(), ..Default::default() }),
        frame(Kind::Forget, 0, &Release { slots: vec![slot.id()] }),
        frame(Kind::Release, 0, &Release { slots: vec![1, 2, 3] }),
        empty_frame(Kind::Ping, 4),
        empty_frame(Kind::Pong, 4),
    ]
}

/// Sends the conversation as one stream of bytes, with the slot's descriptor where it belongs.
fn send_all(client: &Client, slot: &Slot, stream: &[u8]) {
    let hello = hello().len().min(stream.len());
    // The server may have closed already.
    let _ = client.try_send(&stream[..hello], None);
    if stream.len() > hello {
        let _ = client.try_send(&stream[hello..], Some(slot.fd()));
    }
}

/// Of a frame whose body does not come.
fn announced(kind: Kind, length: usize) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    write_header(&mut bytes, kind, 1, length);
    bytes.to_vec()
}

#[test]
fn garbage_at_any_place_ends_one_connection_at_most_and_leaves_nothing() {
    let site = Site::alone(echo_of(DataType::Fp32));
    let slot = Slot::new(4096).unwrap();
    let stream = conversation(&slot).concat();
    let before = (open_descriptors(), mapped_slots());
    for place in 0..stream.len() {
        for garbage in [0xff, 0x00, stream[place] ^ 0x81] {
            let mut stream = stream.clone();
            stream[place] = garbage;
            let mut client = Client::connect(&site.path);
            send_all(&client, &slot, &stream);
            client.stream.shutdown(std::net::Shutdown::Write).unwrap_or_default();
            while client.frame().is_some() {}
        }
    }
    until("nothing left of them", || (open_descriptors(), mapped_slots()) == before);
    let mut client = site.connect();
    client.announce(&slot);
    client.infer(1, &request_in(&slot, 0, 16));
    assert_eq!(client.answer().0, 1);
}

#[test]
fn a_stream_that_ends_at_any_place_leaves_nothing() {
    let site = Site::alone(echo_of(DataType::Fp32));
    let slot = Slot::new(4096).unwrap();
    let stream = conversation(&slot).concat();
    let before = (open_descriptors(), mapped_slots());
    for end in 0..stream.len() {
        let client = Client::connect(&site.path);
        send_all(&client, &slot, &stream[..end]);
    }
    until("nothing left of them", || (open_descriptors(), mapped_slots()) == before);
    until("no requests", || site.runner.inside() == 0);
}

#[test]
fn a_whole_conversation_may_come_byte_by_byte() {
    let site = Site::new(echo_of(DataType::Fp32));
    let slot = Slot::new(4096).unwrap();
    let mut client = Client::connect(&site.path);
    for (index, frame) in conversation(&slot).iter().enumerate() {
        for (place, byte) in frame.iter().enumerate() {
            let descriptor = (index == 1 && place == 0).then(|| slot.fd());
            client.try_send(&[*byte], descriptor).unwrap();
        }
    }
    client.frame().unwrap();
    let mut ids = [0; 4];
    ids.fill_with(|| client.outcome().unwrap().0);
    ids.sort_unstable();
    assert_eq!(ids, [1, 2, 3, 4]);
}

#[test]
fn what_is_not_the_clients_to_send_ends_its_connection_with_a_word() {
    let site = Site::default();
    let slot = Slot::new(4096).unwrap();
    let slot_again = [slot_frame(slot.id(), slot.len())].concat();
    let other_protocol = frame(Kind::Hello, 0, &Hello { protocol: 1, version: "9.9".into() });
    let mut long = vec![0xff, 0xff, 0xff, 0x7f, Kind::Infer as u8];
    long.resize(16, 0);
    let mut unknown = vec![0, 0, 0, 0, 99];
    unknown.resize(16, 0);
    for (greets, bytes, words) in [
        (false, empty_frame(Kind::Ping, 1).to_vec(), "a frame Ping before its Hello"),
        (false, other_protocol.to_vec(), "a Hello of protocol 1 from version '9.9', expected protocol 3"),
        (false, b"GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(), "a frame of the unknown kind"),
        (true, unknown, "a frame of the unknown kind 99"),
        (
            true,
            announced(Kind::Release, 1 << 20),
            "a frame Release of 1048576 bytes, at most 65536 are allowed",
        ),
        (true, announced(Kind::Forget, 1 << 20), "a frame Forget of 1048576 bytes"),
        (
            true,
            announced(Kind::Call, 60 << 20),
            "a frame Call of 62914560 bytes, at most 2162688 are allowed",
        ),
        (true, announced(Kind::Ping, 1 << 11), "a frame Ping of 2048 bytes"),
        (true, long, "a frame Infer of 2147483647 bytes, at most 67108864 are allowed"),
        (true, hello().to_vec(), "a frame Hello, which is not the client's to send here"),
        (true, empty_frame(Kind::Answer, 1).to_vec(), "a frame Answer, which is not the client's"),
        (true, empty_frame(Kind::Part, 1).to_vec(), "a frame Part, which is not the client's"),
        (true, empty_frame(Kind::End, 1).to_vec(), "a frame End, which is not the client's"),
        (true, frame(Kind::Stream, 0, &request(1)).to_vec(), "a request with the id 0, which is not free"),
        (true, frame(Kind::Infer, 0, &request(1)).to_vec(), "a request with the id 0, which is not free"),
        (true, slot_again, "without a file descriptor"),
        (true, frame(Kind::Slot, 0, &request(1)).to_vec(), "a slot that cannot be read"),
        (true, frame(Kind::Call, 1, &slot_message(1)).to_vec(), "a call that cannot be read"),
        (true, with_body(Kind::Release, b"\x0a\x05\x01"), "a list of slots that cannot be read"),
        (true, with_body(Kind::Forget, b"\x0a"), "a list of slots that cannot be read"),
    ] {
        let mut client = if greets { site.connect() } else { Client::connect(&site.path) };
        if !greets {
            client.frame().unwrap();
        }
        client.send(&bytes);
        let said = client.last_words().unwrap_or_else(|| panic!("nothing, instead of {words}"));
        assert!(said.contains(words), "{said}");
    }
    assert!(site.answers());
}

fn slot_message(slot: u64) -> kushi_oip::Slot {
    kushi_oip::Slot { slot, length: 4096 }
}

#[test]
fn an_id_in_flight_is_not_free() {
    let site = Site::default();
    site.puppet.hold();
    let mut client = site.connect();
    client.infer(1, &request(1));
    site.puppet.await_batches(1);
    client.infer(2, &request(2));
    client.infer(2, &request(2));
    assert!(client.last_words().unwrap().contains("a request with the id 2, which is not free"));
    until("an empty queue", || site.runner.backlog().requests == 0);
}

fn memfd(length: u64, seals: SealFlags) -> OwnedFd {
    let descriptor = memfd_create("test", MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&descriptor, length).unwrap();
    fcntl_add_seals(&descriptor, seals).unwrap();
    descriptor
}

#[test]
fn descriptors_that_are_no_slots_end_the_connection() {
    let site = Site::default();
    let sealed = SealFlags::SHRINK | SealFlags::GROW;
    let (pipe, _writer) = std::io::pipe().unwrap();
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    for (descriptor, length, words) in [
        (OwnedFd::from(pipe), 4096, "no memfd sealed"),
        (OwnedFd::from(file), 4096, "no memfd sealed"),
        (OwnedFd::from(socket), 4096, "no memfd sealed"),
        (memfd(4096, SealFlags::empty()), 4096, "no memfd sealed"),
        (memfd(4096, SealFlags::GROW), 4096, "no memfd sealed"),
        (memfd(4096, sealed), 8192, "a slot of 4096 bytes was announced as one of 8192 bytes"),
        (memfd(8192, sealed), 4096, "a slot of 8192 bytes was announced as one of 4096 bytes"),
        (memfd(0, sealed), 0, "a slot of 0 bytes"),
        (memfd(5 << 30, sealed), 5 << 30, "at most 1024 of 4294967296 are allowed"),
        (memfd(4096, sealed), usize::MAX, "at most 1024 of 4294967296 are allowed"),
    ] {
        let mut client = site.connect();
        client.send_with(&slot_frame(1, length), descriptor.as_fd());
        let said = client.last_words().unwrap_or_else(|| panic!("nothing, instead of {words}"));
        assert!(said.contains(words), "{said}");
    }
    assert!(site.answers());
}

#[test]
fn descriptors_that_no_frame_asked_for_end_the_connection_and_are_closed() {
    let site = Site::alone(kushi_testkit::echo_spec());
    let slot = Slot::new(4096).unwrap();
    let before = (open_descriptors(), mapped_slots());
    for count in [2, 5] {
        let mut client = site.connect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(5))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = vec![slot.fd(); count];
        assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
        let bytes = slot_frame(1, slot.len());
        sendmsg(&client.stream, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL).unwrap();
        assert!(client.last_words().unwrap().contains("expected at most one file descriptor at a time"));
    }
    for bytes in [empty_frame(Kind::Ping, 1), frame(Kind::Infer, 1, &request(1))] {
        let mut client = site.connect();
        client.send_with(&bytes, slot.fd());
        assert!(client.last_words().unwrap().contains("a file descriptor that no frame asked for"));
    }
    let mut client = site.connect();
    client.send_with(&slot_frame(1, slot.len())[..5], slot.fd());
    client.send_with(&slot_frame(1, slot.len())[5..10], slot.fd());
    assert!(client.last_words().unwrap().contains("a file descriptor that no frame asked for"));
    drop(client);
    until("nothing left of them", || (open_descriptors(), mapped_slots()) == before);
    assert!(site.answers());
}

#[test]
fn ranges_outside_of_their_slot_end_the_connection_and_unknown_slots_the_request() {
    let site = Site::new(echo_of(DataType::Fp32));
    let slot = Slot::new(4096).unwrap();
    for (offset, elements) in
        [(4093, 1), (4096, 1), (0, 1025), (u64::MAX, 1), (u64::MAX - 3, 1), (8, u64::MAX / 4)]
    {
        let mut client = site.connect();
        client.announce(&slot);
        client.infer(1, &request_in(&slot, offset, elements));
        let said = client.last_words().unwrap_or_else(|| panic!("{offset} {elements}"));
        assert!(said.contains(&format!("at {offset} of slot {}, which has 4096 bytes", slot.id())), "{said}");
    }
    let mut client = site.connect();
    client.infer(1, &request_in(&slot, 0, 1));
    assert_eq!(client.failure().1, "invalid_input");
    client.announce(&slot);
    client.infer(1, &request_in(&slot, 0, 1));
    assert_eq!(client.answer().0, 1);
    client.announce(&slot);
    assert!(client.last_words().unwrap().contains("twice"));
}

#[test]
fn a_hundred_thousand_slots_are_too_many() {
    let site = Site::alone(kushi_testkit::echo_spec());
    let slot = Slot::new(4096).unwrap();
    let before = (open_descriptors(), mapped_slots());
    let mut client = site.connect();
    let refused =
        (0..100_000).find(|&id| client.try_send(&slot_frame(id, slot.len()), Some(slot.fd())).is_err());
    assert!(refused.is_some(), "the server took them all");
    let said = client.last_words();
    assert!(said.is_none_or(|said| said.contains("1025 slots of 4198400 bytes, at most 1024")));
    drop(client);
    until("nothing left of it", || (open_descriptors(), mapped_slots()) == before);
    assert!(site.answers());
}

#[test]
fn a_client_that_never_reads_is_not_read_from_and_harms_nobody() {
    let site = Site::new(echo_of(DataType::Fp32));
    let slot = Slot::new(1 << 16).unwrap();
    let client = site.connect();
    client.announce(&slot);
    client.stream.set_nonblocking(true).unwrap();
    let (mut asked, mut stuck) = (0, 0_u64);
    // Full for as long as another client needs for many answers: nobody makes room any more.
    while stuck < 50 {
        asked += 1;
        let frame = frame(Kind::Infer, asked, &request_in(&slot, 0, 8000));
        if let Err(error) = client.try_send(&frame, None) {
            assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
            stuck += 1;
            let mut other = site.connect();
            other.announce(&slot);
            other.infer(1, &request_in(&slot, 0, 1));
            assert_eq!(other.answer().0, 1);
        } else {
            stuck = 0;
        }
    }
    let answered = site.runner.statistics().success.count;
    // Answers of 32 kB: some that wait here, some in the socket, some that were under way.
    assert!(answered < 10_000, "{answered} answers are kept for a client that does not read");
    drop(client);
    until("its requests to go", || site.runner.inside() == 0);
}

#[test]
fn clients_that_stop_in_the_middle_of_a_frame_harm_nobody() {
    let site = Site::default();
    let mut half = BytesMut::new();
    kushi_oip::write_header(&mut half, Kind::Infer, 1, 60 << 20);
    let stopped: Vec<Client> = (0..50)
        .map(|count| {
            let client = site.connect();
            client.send(&half);
            client.send(&vec![0; 1000 * count]);
            client
        })
        .collect();
    assert!(site.answers());
    drop(stopped);
    assert!(site.answers());
}

#[test]
fn requests_beyond_the_bound_are_refused_one_by_one() {
    let site = Site::default();
    site.puppet.hold();
    let mut client = site.connect();
    let writer = Client::over(client.stream.try_clone().unwrap());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut burst = BytesMut::new();
            for id in 1..=65_546 {
                burst.extend_from_slice(&frame(Kind::Infer, id, &request(1)));
            }
            writer.send(&burst);
        });
        for id in 65_537..=65_546 {
            let (refused, kind, _) = client.failure();
            assert_eq!((refused, &*kind), (id, "overloaded"));
        }
    });
    site.puppet.release_all();
    client.hang_up();
    until("its requests to go", || site.runner.inside() == 0);
    assert!(site.answers());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_after_hello_end_one_connection_at_most(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        kind in 0..14_u8,
    ) {
        let site = Site::default();
        for bytes in [bytes.clone(), framed(kind, &bytes)] {
            let mut client = site.connect();
            client.send(&bytes);
            client.stream.shutdown(std::net::Shutdown::Write).unwrap_or_default();
            while client.frame().is_some() {}
        }
        prop_assert!(site.answers());
    }
}

fn framed(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
    bytes.extend_from_slice(&[kind, 0, 0, 0]);
    bytes.extend_from_slice(&7_u64.to_le_bytes());
    bytes.extend_from_slice(body);
    bytes
}

fn impatient() -> Site {
    let mut options = options(1);
    options.limits.body_timeout = Duration::from_secs(1);
    Site::started_with(&options, echo_spec())
}

#[test]
fn half_a_frame_counts_and_is_waited_for_no_longer_than_a_body() {
    let site = impatient();
    let mut client = site.connect();
    let mut half = announced(Kind::Infer, 8 << 20);
    half.resize(4 << 20, 0);
    client.send(&half);
    until("it counts", || site.inflight_bytes() >= 4 << 20);
    assert!(client.frame().is_none(), "the connection ends");
    until("nothing left of it", || site.inflight_bytes() == 0);
    assert!(site.answers());
}

#[test]
fn a_client_that_is_silent_between_its_frames_stays() {
    let site = impatient();
    let mut client = site.connect();
    assert!(client.asks(1));
    // two more looks than the one that would end half a frame
    std::thread::sleep(Duration::from_millis(3500));
    assert!(client.asks(2));
}

#[test]
fn a_client_that_takes_no_answers_keeps_them_until_the_server_ends() {
    let site = impatient();
    let client = site.connect();
    let call = |id| frame(Kind::Call, id, &Call { verb: "Metrics".into(), ..Default::default() });
    // each is answered with some kilobytes, more than the socket and the door hold
    client.stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    let asked = (1..1_000_000).take_while(|&id| client.try_send(&call(id), None).is_ok()).count();
    assert!(asked > 64, "it was read until then");
    // longer than a body is waited for
    std::thread::sleep(Duration::from_millis(3500));
    assert!(site.inflight_bytes() > 0);
    assert_eq!(site.server.drain(Duration::from_secs(20)), 0);
}

#[test]
fn a_copy_out_of_a_slot_counts_before_it_is_made() {
    let mut options = options(1);
    options.limits.max_inflight_bytes = 4 << 20;
    let site = Site::started_with(&options, echo_of(DataType::Int64));
    let slot = Slot::new(8 << 20).unwrap();
    let mut client = site.connect();
    client.announce(&slot);
    let mut asked = request_in(&slot, 0, 1);
    asked.inputs[0].datatype = "INT64".into();
    asked.inputs[0].shape = vec![1, 1 << 20];
    asked.inputs[0].slot = Some(SlotRange { slot: slot.id(), offset: 0, length: 8 << 20 });
    client.infer(1, &asked);
    let (_, kind, text) = client.failure();
    assert_eq!((&*kind, text.contains("--max-inflight-bytes")), ("invalid_input", true), "{text}");
}
