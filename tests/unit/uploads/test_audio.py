"""Recordings, down to chunks at 16 kHz; streams; and when something was heard."""

from __future__ import annotations

import struct
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from runners.uploads import UnreadableAudio
from runners.uploads.audio import Chunker, chunks, decode, decode_pcm16, resample

if TYPE_CHECKING:
    import numpy.typing as npt

    Samples = npt.NDArray[np.float32]

PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE
HALVES = [0.0, 0.5, -0.5, -1.0]


def piece(name: bytes, content: bytes) -> bytes:
    return struct.pack("<4sI", name, len(content)) + content + bytes(len(content) % 2)


def layout(coding: int, bits: int, channels: int, rate: int) -> bytes:
    frame = channels * bits // 8
    return struct.pack("<HHIIHH", coding, channels, rate, rate * frame, frame, bits)


def riff(*pieces: bytes) -> bytes:
    content = b"WAVE" + b"".join(pieces)
    return struct.pack("<4sI", b"RIFF", len(content)) + content


def wav(samples: bytes, bits: int = 16, *, coding: int = PCM, channels: int = 1, rate: int = 16_000) -> bytes:
    return riff(piece(b"fmt ", layout(coding, bits, channels, rate)), piece(b"data", samples))


def pcm16(*levels: float) -> bytes:
    return np.array([round(level * 32768) for level in levels], "<i2").tobytes()


def tone(hertz: float, rate: int, seconds: float = 0.5) -> Samples:
    return (0.8 * np.sin(2 * np.pi * hertz * np.arange(int(rate * seconds)) / rate)).astype(np.float32)


@pytest.mark.parametrize(
    ("samples", "bits", "coding"),
    [
        (bytes([128, 192, 64, 0]), 8, PCM),
        (pcm16(*HALVES), 16, PCM),
        (b"\0\0\0\0\0\x40\0\0\xc0\0\0\x80", 24, PCM),
        (np.array([0, 1 << 30, -(1 << 30), -(1 << 31)], "<i4").tobytes(), 32, PCM),
        (np.array(HALVES, "<f4").tobytes(), 32, FLOAT),
    ],
    ids=["8", "16", "24", "32", "float32"],
)
def test_samples_of_any_width_are_shares_of_full_scale(samples: bytes, bits: int, coding: int) -> None:
    decoded = decode(wav(samples, bits, coding=coding))
    assert decoded.dtype.name == "float32"
    assert decoded.tolist() == HALVES
    extensible = layout(EXTENSIBLE, bits, 1, 16_000) + struct.pack("<HHIH", 22, bits, 4, coding) + bytes(14)
    assert decode(riff(piece(b"fmt ", extensible), piece(b"data", samples))).tolist() == HALVES


def test_channels_are_averaged() -> None:
    assert decode(wav(pcm16(0.5, 0, -0.5, -1, 0.25, 0.75), channels=2)).tolist() == [0.25, -0.75, 0.5]
    assert decode(wav(bytes([128, 192, 128, 128]), 8, channels=4)).tolist() == [0.125]


def test_floats_beyond_full_scale_are_cut_off() -> None:
    assert decode(wav(np.array([3, -3], "<f4").tobytes(), 32, coding=FLOAT)).tolist() == [1, -1]


def test_pieces_that_are_not_sound_are_passed_over() -> None:
    data = riff(piece(b"LIST", b"odd"), piece(b"fmt ", layout(PCM, 16, 1, 16_000)), piece(b"data", pcm16(0.5)))
    assert decode(data).tolist() == [0.5]


def test_a_recording_written_without_knowing_its_length_is_read_to_the_end() -> None:
    data = wav(pcm16(0.5, 0.25))
    assert decode(data.replace(struct.pack("<4sI", b"data", 4), b"data\xff\xff\xff\xff")).tolist() == [0.5, 0.25]


def test_half_a_frame_at_the_end_is_dropped_and_no_samples_are_none() -> None:
    assert decode(wav(pcm16(0.5, 0.5, 0.25), channels=2)).tolist() == [0.5]
    assert decode(wav(b"")).tolist() == []


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "expected a WAV file, got no bytes"),
        (b"ID3\x04 and so on", "expected a WAV file, got 14 bytes that begin with b'ID3\\x04 and so '"),
        (riff(), "expected a WAV file with samples, found none in it"),
        (riff(piece(b"data", b"12")), "expected a WAV file that says what its samples are before they come"),
        (riff(piece(b"fmt ", b"12"), piece(b"data", b"12")), "expected a WAV file that says what its samples are"),
        (wav(pcm16(0.5, 0.5))[:-1], "the WAV file is truncated: expected 4 bytes, got 3"),
        (wav(b"12", 12), "expected a WAV of PCM with 8, 16, 24 or 32 bits or of float32, got coding 1 of 12 bits"),
        (wav(bytes(8), 64, coding=FLOAT), "or of float32, got coding 3 of 64 bits"),
        (wav(b"12", 16, coding=85), "got coding 85 of 16 bits"),
        (wav(b"12", channels=0), "expected frames of 0 channels of 16 bits, got frames of 0 bytes"),
        (wav(b"12", rate=999), "expected a rate from 1000 to 384000 Hz, got 999"),
        (wav(b"12", rate=384_001), "expected a rate from 1000 to 384000 Hz, got 384001"),
        (wav(b"\0\0\xc0\x7f", 32, coding=FLOAT), "expected samples that are finite numbers, found others among them"),
    ],
)
def test_what_is_no_recording_is_refused_with_a_reason(data: bytes, text: str) -> None:
    with pytest.raises(UnreadableAudio) as refused:
        decode(data)
    assert text in str(refused.value)


def test_frames_that_are_not_what_channels_and_bits_make_are_refused() -> None:
    padded = struct.pack("<HHIIHH", PCM, 1, 16_000, 64_000, 4, 24)
    with pytest.raises(UnreadableAudio, match=r"^expected frames of 1 channels of 24 bits, got frames of 4 bytes$"):
        decode(riff(piece(b"fmt ", padded), piece(b"data", bytes(8))))


def test_a_recording_that_is_too_long_is_refused() -> None:
    data = wav(bytes(2 * 8001), rate=8000)
    with pytest.raises(UnreadableAudio, match=r"^expected at most 1 seconds, got 1\.0$"):
        decode(data, max_seconds=1)
    assert len(decode(data, max_seconds=1.001)) == 16_002
    with pytest.raises(UnreadableAudio, match=r"^expected at most 1 seconds, got 2\.0$"):
        decode_pcm16(bytes(64_000), max_seconds=1)


def test_pieces_without_end_are_not_read_one_by_one() -> None:
    with pytest.raises(UnreadableAudio, match=r"^expected a WAV file with samples"):
        decode(riff(*[piece(b"junk", b"")] * 256, piece(b"fmt ", layout(PCM, 16, 1, 16_000)), piece(b"data", b"12")))


def test_bare_samples() -> None:
    assert decode_pcm16(pcm16(*HALVES)).tolist() == HALVES
    assert len(decode_pcm16(bytes(200), recorded_at=8000)) == 200
    with pytest.raises(UnreadableAudio, match=r"^expected samples of two bytes each, got 3 bytes$"):
        decode_pcm16(b"123")
    with pytest.raises(UnreadableAudio, match=r"^expected a rate from 1000 to 384000 Hz, got 0$"):
        decode_pcm16(b"12", recorded_at=0)


@pytest.mark.parametrize("recorded_at", [8_000, 11_025, 22_050, 44_100, 48_000, 47_999, 96_000])
def test_a_tone_is_the_same_tone_at_another_rate(recorded_at: int) -> None:
    resampled = resample(tone(1000, recorded_at), recorded_at)
    expected = tone(1000, 16_000)
    assert abs(len(resampled) - len(expected)) <= 1
    middle = slice(400, 7600)
    assert np.abs(resampled[middle] - expected[middle]).max() < 0.01


@pytest.mark.parametrize("recorded_at", [32_000, 44_100, 48_000])
def test_what_the_new_rate_cannot_hold_is_filtered_out(recorded_at: int) -> None:
    resampled = resample(tone(11_000, recorded_at), recorded_at)
    assert np.abs(resampled[400:7600]).max() < 0.01


@settings(deadline=None, max_examples=25)
@given(st.integers(1_000, 384_000), st.integers(0, 1500))
def test_silence_and_a_constant_stay_what_they_are_at_any_rate(recorded_at: int, length: int) -> None:
    resampled = resample(np.full(length, 0.5, np.float32), recorded_at)
    assert len(resampled) == -(-length * 16_000 // recorded_at)
    reach = 16 * max(1, 16_000 // recorded_at + 1) + 1
    assert np.allclose(resampled[reach:-reach], 0.5, atol=1e-4)
    assert np.abs(resampled).max(initial=0) <= 1
    assert not resample(np.zeros(length, np.float32), recorded_at).any()


def test_chunks_fill_up_with_silence() -> None:
    cut = chunks(np.ones(300, np.float32), 256)
    assert cut.shape == (2, 256)
    assert cut.sum(axis=1).tolist() == [256, 44]
    assert chunks(np.ones(512, np.float32), 256).shape == (2, 256)
    assert chunks(np.zeros(0, np.float32), 256).shape == (0, 256)


@given(arrays("<i2", st.integers(0, 1500)), st.lists(st.integers(0, 3000)))
def test_a_stream_makes_the_chunks_of_the_whole_however_its_bytes_arrive(
    levels: npt.NDArray[np.int16], cuts: list[int]
) -> None:
    data = levels.tobytes()
    chunker = Chunker(256)
    places = [0, *sorted(cut for cut in cuts if cut <= len(data)), len(data)]
    fed = [chunk for start, end in pairwise(places) for chunk in chunker.feed(data[start:end])]
    assert len(fed) == len(levels) // 256
    fed += chunker.finish()
    assert all(chunk.samples.shape == (1, 256) for chunk in fed)
    assert [chunk.seconds for chunk in fed] == [number * 256 / 16_000 for number in range(len(fed))]
    whole = chunks(decode_pcm16(data), 256)
    assert np.array_equal(np.concatenate([np.zeros((0, 256), np.float32), *(chunk.samples for chunk in fed)]), whole)
    assert chunker.finish() == []


def test_each_stream_begins_at_0() -> None:
    chunker = Chunker(256)
    assert [chunk.seconds for chunk in chunker.feed(bytes(3 * 512))] == [0, 0.016, 0.032]
    assert [chunk.seconds for chunk in chunker.feed(bytes(512))] == [0.048]
    chunker.finish()
    assert [chunk.seconds for chunk in chunker.feed(bytes(512))] == [0]


def test_a_stream_that_ends_inside_a_sample_is_malformed() -> None:
    chunker = Chunker(256)
    assert chunker.feed(b"123") == []
    with pytest.raises(UnreadableAudio, match="got 3 bytes"):
        chunker.finish()
    assert chunker.finish() == []


def expect_an_answer(data: bytes) -> None:
    with suppress(UnreadableAudio):
        decoded = decode(data)
        assert decoded.dtype.name == "float32"
        assert decoded.ndim == 1
        assert np.abs(decoded).max(initial=0) <= 1


@given(st.binary(max_size=200))
def test_random_bytes_are_refused_with_our_exception(data: bytes) -> None:
    expect_an_answer(data)
    expect_an_answer(b"RIFF\0\0\0\0WAVE" + data)
    expect_an_answer(riff(piece(b"fmt ", data), piece(b"data", data)))


@settings(deadline=None)
@given(st.sampled_from([(8, PCM), (16, PCM), (24, PCM), (32, PCM), (32, FLOAT)]), st.data())
def test_damaged_files_are_read_or_refused_with_our_exception(kind: tuple[int, int], data: st.DataObject) -> None:
    damaged = bytearray(wav(bytes(range(240)), kind[0], coding=kind[1], channels=2, rate=44_100))
    for _ in range(data.draw(st.integers(1, 6))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    expect_an_answer(bytes(damaged[: data.draw(st.integers(0, len(damaged)))]))
    expect_an_answer(bytes(damaged))
