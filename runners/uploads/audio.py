"""
From recordings to mono sound at 16 kHz, whole or in chunks.

What always holds: for any bytes `decode` answers finite samples within -1..1 or raises UnreadableAudio, and a recording
that is too long, or has too many samples, is refused before it is decoded.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .errors import UnreadableAudio

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    Samples = npt.NDArray[np.float32]

__all__ = [
    "MAX_FRAMES",
    "MAX_SECONDS",
    "RATE",
    "Chunk",
    "Chunker",
    "chunks",
    "decode",
    "decode_pcm16",
    "resample",
]

RATE = 16_000
MAX_SECONDS = 600.0
MAX_FRAMES = 28_800_000
"""Of any rate: so many seconds at 48 kHz, which take 230 MB besides the file while they are resampled"""
RATES = (1_000, 384_000)
CROSSINGS = 16
"""Zero crossings of the low-pass on either side: enough to keep what is audible and drop what would fold back"""

_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_WIDTHS = {(_PCM, 8), (_PCM, 16), (_PCM, 24), (_PCM, 32), (_FLOAT, 32)}
_MAX_RIFF_CHUNKS = 256
"""Far more than any program writes before the samples"""
_PART_SAMPLES = 1 << 20
_UNKNOWN_LENGTH = 0xFFFFFFFF
"""What programs write that cannot seek back when the recording ends"""


class Chunk(NamedTuple):
    seconds: float
    """Where it begins"""
    samples: Samples
    """float32 [1, length]"""


class _Wav(NamedTuple):
    coding: int
    channels: int
    rate: int
    frame: int
    """Bytes of one sample of all channels"""
    bits: int
    samples: memoryview


def decode(data: bytes, *, rate: int = RATE, max_seconds: float = MAX_SECONDS) -> Samples:
    """
    float32 samples within -1..1 from a WAV file: PCM of 8, 16, 24 or 32 bits or float32, of any rate, with any number
    of channels, which are averaged.
    """
    wav = _read(data)
    if (wav.coding, wav.bits) not in _WIDTHS:
        raise UnreadableAudio(
            f"expected a WAV of PCM with 8, 16, 24 or 32 bits or of float32, got coding {wav.coding} of {wav.bits} bits"
        )
    frame = wav.channels * wav.bits // 8
    if not frame or wav.frame != frame:
        raise UnreadableAudio(
            f"expected frames of {wav.channels} channels of {wav.bits} bits, got frames of {wav.frame} bytes"
        )
    _check(len(wav.samples) // frame, wav.rate, max_seconds)
    return resample(_mono(wav), wav.rate, rate)


def decode_pcm16(
    data: bytes, *, recorded_at: int = RATE, rate: int = RATE, max_seconds: float = MAX_SECONDS
) -> Samples:
    """float32 samples from bare PCM: mono, 16 bits, little-endian"""
    if len(data) % 2:
        raise UnreadableAudio(f"expected samples of two bytes each, got {len(data)} bytes")
    _check(len(data) // 2, recorded_at, max_seconds)
    return resample(_mono(_Wav(_PCM, 1, recorded_at, 2, 16, memoryview(data))), recorded_at, rate)


def resample(samples: Samples, recorded_at: int, rate: int = RATE) -> Samples:
    """
    The same sound at another rate: what is above half of either rate is filtered out, not folded back, by 40 dB from an
    eighth beyond it. The work grows with the length and with nothing else, whatever the two rates are. Sharper filters
    are in libsoxr, whose licence keeps it out of what is shipped (LGPL), and in libsamplerate, at twice the time.
    """
    if recorded_at == rate or not len(samples):
        return np.clip(samples, -1, 1)
    common = math.gcd(recorded_at, rate)
    # output n lies at n * step / phases of the input; outputs that are `phases` apart lie equally between two inputs
    phases, step = rate // common, recorded_at // common
    reach = math.ceil(CROSSINGS * max(1, recorded_at / rate))
    length = -(-len(samples) * phases // step)
    padded = np.pad(samples, (reach - 1, reach + 1))
    # large, and not needed any more where the caller has let go of them
    del samples
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * reach)
    resampled = np.empty(length, np.float32)
    for phase in range(min(phases, length)):
        first, between = divmod(phase * step, phases)
        outputs = len(range(phase, length, phases))
        taps = _low_pass(between / phases, reach, min(1, rate / recorded_at))
        resampled[phase::phases] = windows[first::step][:outputs] @ taps
    return np.clip(resampled, -1, 1, out=resampled)


def chunks(samples: Samples, length: int) -> Samples:
    """float32 [N, length]; the last one is filled up with silence"""
    return np.pad(samples, (0, -len(samples) % length)).reshape(-1, length)


class Chunker:
    """Cuts a stream of bare PCM (mono, 16 bits, little-endian) into chunks, however its bytes arrive."""

    def __init__(self, length: int, *, rate: int = RATE) -> None:
        self._length = length
        self._seconds = length / rate
        self._rest = b""
        self._cut = 0

    def feed(self, data: bytes) -> list[Chunk]:
        """The chunks that are complete with these bytes"""
        data = self._rest + data
        complete = len(data) // (2 * self._length) * (2 * self._length)
        self._rest = data[complete:]
        first, self._cut = self._cut, self._cut + complete // (2 * self._length)
        samples = _levels(data[:complete], _PCM, 16).reshape(-1, 1, self._length)
        return [Chunk(number * self._seconds, one) for number, one in enumerate(samples, first)]

    def finish(self) -> list[Chunk]:
        """What is left, filled up with silence, if anything is; a stream may begin after it"""
        rest, begun = self._rest, self._cut * self._seconds
        self._rest, self._cut = b"", 0
        return [Chunk(begun, chunks(decode_pcm16(rest), self._length))] if rest else []


def _check(frames: int, rate: int, max_seconds: float) -> None:
    if not RATES[0] <= rate <= RATES[1]:
        raise UnreadableAudio(f"expected a rate from {RATES[0]} to {RATES[1]} Hz, got {rate}")
    if frames > MAX_FRAMES:
        raise UnreadableAudio(f"expected at most {MAX_FRAMES} samples of each channel, got {frames}")
    if frames > max_seconds * rate:
        raise UnreadableAudio(f"expected at most {max_seconds:g} seconds, got {frames / rate:.1f}")


def _read(data: bytes) -> _Wav:
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise UnreadableAudio(f"expected a WAV file, got {_opening(data)}")
    layout = memoryview(b"")
    for name, content, announced in _riff_chunks(memoryview(data)):
        if name == b"fmt ":
            layout = content
        if name == b"data":
            if len(layout) < 16:
                raise UnreadableAudio("expected a WAV file that says what its samples are before they come")
            if len(content) < announced != _UNKNOWN_LENGTH:
                raise UnreadableAudio(f"the WAV file is truncated: expected {announced} bytes, got {len(content)}")
            coding, channels, rate, _, frame, bits = struct.unpack_from("<HHIIHH", layout)
            if coding == _EXTENSIBLE and len(layout) >= 26:
                # the coding is the beginning of a longer identifier
                (coding,) = struct.unpack_from("<H", layout, 24)
            return _Wav(coding, channels, rate, frame, bits, content)
    raise UnreadableAudio("expected a WAV file with samples, found none in it")


def _riff_chunks(data: memoryview) -> Iterator[tuple[bytes, memoryview, int]]:
    """Name, content and announced length of each; a content may be shorter than announced"""
    at = 12
    for _ in range(_MAX_RIFF_CHUNKS):
        if at + 8 > len(data):
            return
        name, announced = struct.unpack_from("<4sI", data, at)
        yield name, data[at + 8 : at + 8 + announced], announced
        # each begins at an even place
        at += 8 + announced + announced % 2


def _opening(data: bytes) -> str:
    return f"{len(data)} bytes that begin with {data[:12]!r}" if data else "no bytes"


def _mono(wav: _Wav) -> Samples:
    """The mean of all channels, a part at a time: on the way to it samples take eight bytes each"""
    frames = len(wav.samples) // wav.frame
    mono = np.empty(frames, np.float32)
    step = max(1, _PART_SAMPLES // wav.channels)
    for begin in range(0, frames, step):
        end = min(begin + step, frames)
        levels = _levels(wav.samples[begin * wav.frame : end * wav.frame], wav.coding, wav.bits)
        mono[begin:end] = levels.reshape(-1, wav.channels).mean(axis=1, dtype=np.float32)
    return mono


def _levels(data: bytes | memoryview, coding: int, bits: int) -> Samples:
    if coding == _FLOAT:
        levels = np.frombuffer(data, "<f4").astype(np.float32)
        if not np.isfinite(levels).all():
            raise UnreadableAudio("expected samples that are finite numbers, found others among them")
        return np.clip(levels, -1, 1)
    if bits == 8:
        return ((np.frombuffer(data, np.uint8).astype(np.int16) - 128) / 128).astype(np.float32)
    if bits == 24:
        wide = np.zeros((len(data) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
        data, bits = wide.tobytes(), 32
    whole = np.frombuffer(data, f"<i{bits // 8}").astype(np.float64)
    return (whole / 2.0 ** (bits - 1)).astype(np.float32)


def _low_pass(between: float, reach: int, cutoff: float) -> Samples:
    """The weights of the inputs around a place `between` two of them: a sinc under a Hann window, of sum 1"""
    distance = np.arange(1 - reach, reach + 1) - between
    taps = np.sinc(distance * cutoff) * np.cos(np.pi / 2 * distance / reach) ** 2
    return np.asarray(taps / taps.sum(), np.float32)
