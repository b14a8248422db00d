"""What is sent and read while code of the model runs in the midst of it, or memory is missing"""

from __future__ import annotations

import gc
import mmap
import os
import signal
import socket
import struct
import threading
from typing import TYPE_CHECKING, Any

import pytest

from runners.worker import channel as module
from runners.worker import kinds
from runners.worker.channel import INLINE_BYTES, Channel, Closed, Frame
from runners.worker.execution import Key
from runners.worker.loop import Worker
from runners.worker.messages import FINAL
from runners.worker.requests import InferenceRequest
from runners.worker.responses import RESPONSE_FINAL, InferenceResponse
from runners.worker.upcalls import Upcalls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KIND = 36
LONG = b"x" * (INLINE_BYTES + 1)


class Odd(Channel):
    """Runs code of a model when a slot is taken, as the collector of garbage may"""

    def within(self) -> None:
        """As the model has it"""

    def _take(self, length: int) -> Any:
        self.within()
        return super()._take(length)


@pytest.fixture
def ends() -> Iterator[tuple[Odd, Channel]]:
    """A channel, and the other end of it"""
    ours, theirs = socket.socketpair()
    both = Odd(ours.detach()), Channel(theirs.detach())
    yield both
    for one in both:
        one.close()


def read(channel: Channel, count: int) -> list[bytes]:
    return [bytes(frame_of(channel).payload) for _ in range(count)]


def frame_of(channel: Channel) -> Frame:
    frame = channel.read()
    assert frame is not None
    return frame


def test_what_a_destructor_sends_follows_what_is_sent_just_now(ends: tuple[Odd, Channel]) -> None:
    ours, theirs = ends
    ours.within = lambda: ours.send(KIND, [b"within"])  # type: ignore[method-assign]
    ours.send(KIND, [LONG])
    assert read(theirs, 2) == [LONG, b"within"]


def test_a_long_payload_may_come_through_the_socket() -> None:
    ours, theirs = socket.socketpair()
    long = bytes(range(256)) * 4096
    frame = struct.pack("<IIQQQ", KIND, 1, 7, 0, len(long)) + long
    sender = threading.Thread(target=ours.sendall, args=(frame * 2,), daemon=True)
    sender.start()
    channel = Channel(theirs.detach())
    assert read(channel, 2) == [long, long]
    channel.close()
    ours.close()
    sender.join()


def test_what_cannot_be_sent_afterwards_closes_the_channel(ends: tuple[Odd, Channel]) -> None:
    ours, theirs = ends

    def within() -> None:
        ours.within = fail  # type: ignore[method-assign]
        ours.send(KIND, [LONG])

    def fail() -> None:
        raise MemoryError

    ours.within = within  # type: ignore[method-assign]
    # its sender has been told that it has left
    with pytest.raises(Closed):
        ours.send(KIND, [LONG, b"whole"])
    assert read(theirs, 1) == [LONG + b"whole"]
    with pytest.raises(Closed):
        theirs.read()


def test_a_slot_that_comes_back_in_the_midst_of_a_frame_is_kept_afterwards(ends: tuple[Odd, Channel]) -> None:
    ours, theirs = ends
    ours.send(KIND, [LONG])
    read(theirs, 1)
    theirs.send(KIND, [b"taken"])

    def within() -> None:
        assert read(ours, 1) == [b"taken"]

    ours.within = within  # type: ignore[method-assign]
    ours.send(KIND, [LONG])
    assert read(theirs, 1) == [LONG]
    assert len(ours._own) == 2
    assert len(ours._free) == 1


def test_what_fails_before_it_is_sent_can_be_sent_again(ends: tuple[Odd, Channel]) -> None:
    ours, theirs = ends
    failures = [MemoryError(), KeyboardInterrupt()]

    def fail() -> None:
        if failures:
            raise failures.pop()

    ours.within = fail  # type: ignore[method-assign]
    for kind in (KeyboardInterrupt, MemoryError):
        with pytest.raises(kind):
            ours.send(KIND, [LONG])
    ours.send(KIND, [LONG])
    assert read(theirs, 1) == [LONG]


def test_an_answer_that_has_found_no_memory_is_not_the_end(ends: tuple[Odd, Channel]) -> None:
    ours, theirs = ends
    upcalls = Upcalls(ours, lambda done: None)
    failures = [MemoryError()]

    def fail() -> None:
        if failures:
            raise failures.pop()

    ours.within = fail  # type: ignore[method-assign]
    key = Key(1, 0, None, decoupled=False)
    send = ours.send
    # each takes a slot, however short it is
    ours.send = lambda kind, payload, **more: send(kind, [*payload, bytes(INLINE_BYTES)], **more)  # type: ignore[method-assign]
    with pytest.raises(MemoryError):
        upcalls.send(key, None, RESPONSE_FINAL)
    assert not key.ended
    upcalls.send(key, None, RESPONSE_FINAL)
    assert key.ended
    assert frame_of(theirs).id == 1


@pytest.mark.parametrize("is_read", [False, True], ids=["nobody_reads", "another_thread_reads"])
def test_a_sender_hears_of_slots_that_come_back(
    ends: tuple[Odd, Channel], monkeypatch: pytest.MonkeyPatch, *, is_read: bool
) -> None:
    monkeypatch.setattr(module, "_MOST_IN_USE", 2)
    ours, theirs = ends
    # who waits for room reads, as long as nobody else does
    worker = Worker(ours)
    is_over = threading.Event()
    reader = threading.Thread(target=worker.wait_until, args=(is_over.is_set,), daemon=True)
    if is_read:
        reader.start()
    for _ in range(2):
        ours.send(KIND, [LONG])
    kept = [frame_of(theirs).payload for _ in range(2)]
    third = threading.Thread(target=ours.send, args=(KIND, [LONG]), daemon=True)
    third.start()
    third.join(0.1)
    assert third.is_alive()
    kept.clear()
    gc.collect()
    # with nothing behind them
    theirs._write(theirs._releases())
    third.join(30)
    assert not third.is_alive()
    assert read(theirs, 1) == [LONG]
    is_over.set()
    # for whoever reads
    theirs.send(KIND, [b""])
    if is_read:
        reader.join(30)
        assert not reader.is_alive()


class Overtaken(Upcalls):
    """Whose last frame comes just before somebody asks whether it has"""

    last: Frame | None = None

    def is_open(self, number: int) -> bool:
        last, self.last = self.last, None
        if last is not None:
            self.take(last)
        return super().is_open(number)


def test_an_answer_that_comes_just_now_is_not_lost(ends: tuple[Odd, Channel]) -> None:
    ours, theirs = ends
    upcalls = Overtaken(ours, lambda done: None)
    request = InferenceRequest(model_name="other", inputs=[], requested_output_names=["OUT"])
    answers = upcalls.infer(request, decoupled=True)
    answer = memoryview(struct.pack("<4I2s", 0, 0, 2, 0, b"{}"))
    upcalls.last = Frame(kinds.CALL_RESPONSE, FINAL, frame_of(theirs).id, answer)
    assert len(list(answers)) == 1


def test_threads_share_an_iterator_until_its_end(ends: tuple[Odd, Channel]) -> None:
    ours, theirs = ends
    changed = threading.Condition()

    def wait_until(done: Callable[[], bool]) -> None:
        with changed:
            changed.wait_for(done)

    upcalls = Upcalls(ours, wait_until)
    request = InferenceRequest(model_name="other", inputs=[], requested_output_names=["OUT"])
    answers = upcalls.infer(request, decoupled=True)
    number = frame_of(theirs).id
    taken: list[InferenceResponse] = []
    takers = [threading.Thread(target=lambda: taken.extend(answers)) for _ in range(4)]
    for taker in takers:
        taker.start()
    for flags in [0] * 100 + [FINAL] * 2:
        answer = b"" if flags else struct.pack("<4I2s", 0, 0, 2, 0, b"{}")
        with changed:
            upcalls.take(Frame(kinds.CALL_RESPONSE, flags, number, memoryview(answer)))
            changed.notify_all()
    for taker in takers:
        taker.join(60)
    assert len(taken) == 100
    assert list(answers) == []


def test_memory_that_cannot_be_mapped_keeps_no_descriptor(
    ends: tuple[Odd, Channel], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    create = os.memfd_create

    def remembered(*given: Any) -> int:
        made.append(create(*given))
        return made[-1]

    def refused(*_: Any) -> None:
        raise OSError(12, "no memory")

    monkeypatch.setattr(os, "memfd_create", remembered)
    monkeypatch.setattr(mmap, "mmap", refused)
    with pytest.raises(OSError, match="no memory"):
        ends[0].send(KIND, [LONG])
    (descriptor,) = made
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_what_cannot_be_read_ends_the_channel(
    ends: tuple[Odd, Channel], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ours, theirs = ends
    theirs.send(KIND, [LONG])

    def refused(*_: Any) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(module, "_mapped", refused)
    with pytest.raises(Closed):
        ours.read()
    assert (
        "cannot be read, so that this process ends: OSError: [Errno 24] Too many open files" in capfd.readouterr().err
    )
    with pytest.raises(Closed):
        ours.send(KIND, [b"more"])


def test_what_the_handler_of_a_signal_raises_comes_out_and_nothing_is_lost(ends: tuple[Odd, Channel]) -> None:
    ours, theirs = ends

    def late(*_: Any) -> None:
        raise TimeoutError("late")

    before = signal.signal(signal.SIGALRM, late)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(TimeoutError, match="late"):
            ours.read()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    theirs.send(KIND, [b"afterwards"])
    assert read(ours, 1) == [b"afterwards"]


def test_no_more_slots_are_in_use_than_the_server_takes(ends: tuple[Odd, Channel]) -> None:
    ours, theirs = ends
    waited: list[int] = []
    kept: list[Any] = []

    def until(done: Any) -> None:
        waited.append(len(ours._own))
        # the other end needs none of them any more, and says so with what it sends
        kept.clear()
        theirs.send(KIND, [b"taken"])
        ours.read()
        assert done()

    ours.until = until
    for _ in range(2 * module._MOST_IN_USE):
        ours.send(KIND, [LONG])
        kept.append(frame_of(theirs).payload)
    assert waited == [module._MOST_IN_USE]


def test_what_a_model_keeps_many_of_is_copied(ends: tuple[Odd, Channel]) -> None:
    ours, theirs = ends
    kept = []
    for number in range(2 * module._CROWD):
        ours.send(KIND, [bytes([number]), LONG])
        kept.append(frame_of(theirs).payload)
        # with it goes which slots are free again
        theirs.send(KIND, [b"taken"])
        ours.read()
    assert len(ours._own) - len(ours._free) == module._CROWD
    assert [int(payload[0]) for payload in kept] == list(range(2 * module._CROWD)), "no slot was used again too early"
    assert all(payload[1:].tobytes() == LONG for payload in kept)
    kept.clear()
    theirs.send(KIND, [b"taken"])
    ours.read()
    assert len(ours._own) == len(ours._free), "the rest came back, too"


def test_slots_go_back_though_nothing_is_sent(ends: tuple[Odd, Channel]) -> None:
    ours, theirs = ends
    kept = []
    for _ in range(module._CROWD + 2 * module._MANY_RELEASED):
        ours.send(KIND, [LONG])
        kept.append(frame_of(theirs).payload)
    assert len(theirs._released) < module._MANY_RELEASED


def test_long_payloads_are_never_copied(ends: tuple[Odd, Channel], monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = ends
    monkeypatch.setattr(module, "_CROWD", 0)
    for length, is_copied in ((module._MOST_COPIED, True), (module._MOST_COPIED + 1, False)):
        ours.send(KIND, [bytes(length)])
        payload = frame_of(theirs).payload
        assert (not theirs._kept) == is_copied
        del payload
