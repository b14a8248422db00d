"""Recordings that would take much more than their files, in a process whose peak of memory is looked at."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from runners.uploads.audio import MAX_FRAMES

MOST_MIB = 290


def wav(samples: bytes, rate: int, *, bits: int, channels: int = 1, coding: int = 1) -> bytes:
    frame = channels * bits // 8
    layout = struct.pack("<HHIIHH", coding, channels, rate, rate * frame, frame, bits)
    body = b"WAVEfmt " + struct.pack("<I", len(layout)) + layout + b"data" + struct.pack("<I", len(samples)) + samples
    return b"RIFF" + struct.pack("<I", len(body)) + body


@pytest.mark.parametrize("rate", [112_000, 384_000])
def test_a_sample_for_each_byte_is_refused(decoded: Any, rate: int) -> None:  # noqa: ANN401 - a function
    answer, mib = decoded(wav(bytes(64 << 20), rate, bits=8), "audio")
    assert answer == f"expected at most {MAX_FRAMES} samples of each channel, got {64 << 20}"
    assert mib < 16


@pytest.mark.parametrize(("bits", "channels"), [(8, 1), (16, 1), (24, 1), (8, 2), (32, 2)])
def test_the_longest_recordings_take_little_more_than_their_samples(
    decoded: Any,  # noqa: ANN401 - a function
    bits: int,
    channels: int,
) -> None:
    frames = min(MAX_FRAMES, (64 << 20) // (bits // 8 * channels))
    answer, mib = decoded(wav(bytes(frames * bits // 8 * channels), 48_000, bits=bits, channels=channels), "audio")
    assert answer == [-(-frames // 3)]
    assert mib < MOST_MIB


def test_many_channels_are_one_sound(decoded: Any) -> None:  # noqa: ANN401 - a function
    answer, mib = decoded(wav(bytes(64 << 20), 16_000, bits=8, channels=65_535), "audio")
    assert answer == [(64 << 20) // 65_535]
    assert mib < MOST_MIB
