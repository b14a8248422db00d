"""The two small models, behind what is made of files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

from runners import Engine
from runners.uploads import audio
from tests.small_service import MODELS, digits, sounds
from tests.small_service.handwriting import handwritten

if TYPE_CHECKING:
    import numpy.typing as npt


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(MODELS) as opened:
        yield opened


def test_every_model_is_ready(engine: Engine) -> None:
    rows = {(row["name"], row["state"]) for row in engine.get_model_repository_index()}
    assert rows == {("digits", "READY"), ("toneact", "READY")}


def test_a_page_of_digits_is_read_in_one_request(engine: Engine) -> None:
    page = np.zeros((220, 520), np.uint8)
    for digit in range(10):
        large = Image.fromarray(handwritten(digit)).resize((80, 80), Image.Resampling.BICUBIC)
        top, left = 10 + digit // 5 * 105, 10 + digit % 5 * 100
        page[top : top + 80, left : left + 80] = (np.asarray(large).clip(0, 1) * 230).astype(np.uint8)
    _, images = digits.many(page)
    read, probabilities = digits.answer(engine.infer("digits", {"image": images})["logits"])
    assert read.tolist() == list(range(10))
    assert probabilities.max(axis=1).min() > 0.5


def tone_from(start: float, end: float, *, seed: int) -> npt.NDArray[np.float32]:
    seconds = np.arange(2 * audio.RATE) / audio.RATE
    tone = sum(np.sin(2 * np.pi * 180 * harmonic * seconds) / harmonic for harmonic in range(1, 6))
    noise = np.random.default_rng(seed).normal(0, 0.01, len(seconds))
    return (noise + np.where((start < seconds) & (seconds < end), 0.1 * tone, 0)).astype(np.float32)


def test_two_recordings_are_heard_side_by_side_each_with_its_own_state(engine: Engine) -> None:
    times = [(0.5, 1.2), (0.2, 0.9)]
    recordings = [audio.chunks(tone_from(*between, seed=seed), sounds.CHUNK) for seed, between in enumerate(times)]
    state = np.zeros((2, 64), np.float32)
    heard = []
    for chunk in np.stack(recordings, 1):
        result = engine.infer("toneact", {"chunk": chunk, "state": state})
        heard.append(result["probability"][:, 0])
        state = result["state_out"]
    for probabilities, between in zip(np.stack(heard, 1), times, strict=True):
        (segment,) = sounds.activity(probabilities)
        assert np.allclose(segment, between, atol=0.05)
