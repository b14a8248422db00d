"""Recordings made on the spot: noise of many colours and loudnesses, and now and then a harmonic sound in it.

What always holds: the same seed makes the same recordings, and a burst of noise is as likely, as long and as loud as a
harmonic sound, so that loudness alone does not give the answer away.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["CHUNK", "RATE", "Recordings", "make_recordings"]

RATE = 16_000
CHUNK = 256

PAUSE_CHUNKS = (4, 20)
SOUND_CHUNKS = (4, 20)
PITCH_HZ = (90.0, 350.0)
HARMONICS = 6
LOUDNESS = (0.008, 0.12)
"""The root mean square of a sound"""
NOISE_LOUDNESS = (0.008, 0.02)
"""The root mean square of what is heard all the time"""
VIBRATO_HZ = 5.0
VIBRATO_DEPTH = 0.02
FADE_SECONDS = 0.01

Samples = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Recordings:
    """Chunks as float32 [recordings, chunks, 256] within -1..1; labels, float32 [recordings, chunks], are 0 or 1."""

    chunks: npt.NDArray[np.float32]
    labels: npt.NDArray[np.float32]


def make_recordings(count: int, chunks: int, seed: int) -> Recordings:
    random = np.random.default_rng(seed)
    made = [_recording(chunks, random) for _ in range(count)]
    return Recordings(np.stack([sound for sound, _ in made]), np.stack([labels for _, labels in made]))


def _recording(chunks: int, random: np.random.Generator) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    sound = random.uniform(*NOISE_LOUDNESS) * _noise(chunks * CHUNK, random)
    labels = np.zeros(chunks, np.float32)
    start = int(random.integers(0, PAUSE_CHUNKS[1]))
    while start < chunks:
        end = min(chunks, start + int(random.integers(*SOUND_CHUNKS)))
        samples = (end - start) * CHUNK
        harmonic = random.random() < 0.5
        loudness = np.exp(random.uniform(*np.log(LOUDNESS)))
        shape = _tone(samples, random) if harmonic else _noise(samples, random)
        sound[start * CHUNK : end * CHUNK] += loudness * _fade(samples) * shape
        labels[start:end] = harmonic
        start = end + int(random.integers(*PAUSE_CHUNKS))
    return np.clip(sound, -1, 1).astype(np.float32).reshape(chunks, CHUNK), labels


def _noise(samples: int, random: np.random.Generator) -> Samples:
    """White noise, or duller the more neighbours are averaged."""
    neighbours = int(random.integers(1, 9))
    return np.convolve(random.standard_normal(samples), np.full(neighbours, neighbours**-0.5), "same")


def _tone(samples: int, random: np.random.Generator) -> Samples:
    time = np.arange(samples) / RATE
    wobble = VIBRATO_DEPTH / VIBRATO_HZ * np.sin(2 * np.pi * VIBRATO_HZ * time)
    phase = 2 * np.pi * random.uniform(*PITCH_HZ) * (time + wobble)
    tone = np.zeros(samples)
    for harmonic in range(1, HARMONICS + 1):
        strength = harmonic ** -random.uniform(0.5, 1.5)
        tone += strength * np.sin(harmonic * phase + random.uniform(0, 2 * np.pi))
    return tone / float(np.sqrt(np.mean(tone**2)))


def _fade(samples: int) -> Samples:
    """Rises and falls within ten milliseconds."""
    edge = np.arange(1, samples + 1) / (FADE_SECONDS * RATE)
    return np.minimum(np.minimum(edge, edge[::-1]), 1)
