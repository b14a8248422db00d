"""How well the served models do behind `preprocessing`: from the bytes of files to the answer.

    python -m tests.small_service.training.check_preprocessing

Pictures are made of the held-out digits that no network has seen, recordings are the held-out ones of `toneact`. Exits
with 1 below the required accuracies, and then leaves the page as it was.
"""

from __future__ import annotations

import io
import wave
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from runners.uploads import audio, images
from tests.small_service import digits
from tests.small_service.sounds import CHUNK
from tests.small_service.training import toneact
from tests.small_service.training.digits import HELD_OUT, read_digits
from tests.small_service.training.export import open_session
from tests.small_service.training.readme import write_section
from tests.small_service.training.tones import RATE, make_recordings

__all__ = ["main"]

REPOSITORY = Path(__file__).resolve().parent.parent / "model_repository"
SEED = 0
SIZES = (28, 200)
PAGE_SIZES = (28, 80)
PAGE_ROWS, PAGE_COLUMNS = 5, 8
REQUIRED_OF_ONE = 0.96
REQUIRED_OF_MANY = 0.96
REQUIRED_OF_SOUND = 0.97

Grey = npt.NDArray[np.float32]
Place = tuple[int, int, int]
"""Left, top and size of a digit that was put on a page"""


@dataclass(frozen=True)
class Look:
    """How pictures of digits are made: ink on paper, then light, then noise."""

    text: str
    light_on_dark: bool = False
    noise: float = 6.0
    """Standard deviation, in grey levels"""
    sharp: bool = False
    """Strokes with an edge, as a pen or a drawing program makes them; otherwise they fade as the 8x8 images do"""
    file_format: str = "PNG"


LOOKS = (
    Look("dark on light"),
    Look("light on dark", light_on_dark=True),
    Look("dark on light, JPEG", file_format="JPEG"),
    Look("noisy: standard deviation of 25 grey levels", noise=25),
    Look("sharp strokes, dark on light", sharp=True),
    Look("sharp strokes, light on dark", sharp=True, light_on_dark=True),
)


def drawn(digit: Grey, size: int, look: Look) -> Grey:
    """0 = paper, 1 = ink"""
    large = Image.fromarray(digit).resize((size, size), Image.Resampling.BICUBIC)
    if not look.sharp:
        return np.asarray(large, np.float32).clip(0, 1)
    edged = Image.fromarray(np.where(np.asarray(large) > 0.5, np.uint8(255), np.uint8(0)))
    return np.asarray(edged.filter(ImageFilter.GaussianBlur(size / 100)), np.float32) / np.float32(255)


def photographed(ink: Grey, look: Look, random: np.random.Generator) -> bytes:
    """The bytes of a file with paper and pen of some grey levels, and noise."""
    light, dark = random.uniform(180, 255), random.uniform(0, 80)
    paper, pen = (dark, light) if look.light_on_dark else (light, dark)
    levels = np.clip(paper + (pen - paper) * ink + random.normal(0, look.noise, ink.shape), 0, 255)
    file = io.BytesIO()
    Image.fromarray(levels.astype(np.uint8)).save(file, look.file_format)
    return file.getvalue()


def picture(digit: Grey, look: Look, random: np.random.Generator) -> bytes:
    """One digit somewhere on a picture up to twice its size."""
    size = int(random.integers(SIZES[0], SIZES[1] + 1))
    ink = np.zeros((int(size * random.uniform(1.05, 2)), int(size * random.uniform(1.05, 2))), np.float32)
    top, left = (int(random.integers(0, room - size + 1)) for room in ink.shape)
    ink[top : top + size, left : left + size] = drawn(digit, size, look)
    return photographed(ink, look, random)


def page(shown: Grey, look: Look, random: np.random.Generator) -> tuple[bytes, list[Place]]:
    """Digits of about one size on uneven lines, and where each was put."""
    size = int(random.integers(PAGE_SIZES[0], PAGE_SIZES[1] + 1))
    step = int(size * 1.4)
    ink = np.zeros(((PAGE_ROWS + 1) * step, (PAGE_COLUMNS + 1) * step), np.float32)
    places = []
    for number, digit in enumerate(shown):
        row, column = divmod(number, PAGE_COLUMNS)
        own = int(size * random.uniform(0.85, 1.1))
        top = int((row + 0.5) * step + random.uniform(0, 0.15) * size)
        left = int((column + 0.5) * step + random.uniform(0, 0.15) * size)
        part = ink[top : top + own, left : left + own]
        np.maximum(part, drawn(digit, own, look), out=part)
        places.append((left, top, own))
    return photographed(ink, look, random), places


def owner(box: digits.Box, places: list[Place]) -> int | None:
    """The digit that a found box shows: the one whose square holds the middle of the box."""
    across, down = (box.left + box.right) / 2, (box.top + box.bottom) / 2
    for number, (left, top, size) in enumerate(places):
        if left <= across < left + size and top <= down < top + size:
            return number
    return None


def read(arrays: Grey) -> npt.NDArray[np.int64]:
    (logits,) = open_session(REPOSITORY / "digits" / "1" / "model.onnx").run(None, {"image": arrays})
    return digits.answer(logits)[0]


def accuracy_of_one(shown: Grey, labels: npt.NDArray[np.int64], look: Look) -> float:
    random = np.random.default_rng(SEED)
    arrays = [digits.one(images.decode(picture(digit, look, random))) for digit in shown]
    return float((read(np.concatenate(arrays)) == labels).mean())


def accuracy_of_printed() -> float:
    """Digits of the font that comes with Pillow, ten sizes of each."""
    arrays, labels = [], []
    for label in range(10):
        for size in np.linspace(*SIZES, 10):
            sheet = Image.new("L", (2 * int(size), 2 * int(size)), "white")
            pen = ImageDraw.Draw(sheet)
            pen.text((size / 2, size / 3), str(label), fill="black", font=ImageFont.load_default(size))
            arrays.append(digits.one(np.asarray(sheet)))
            labels.append(label)
    return float((read(np.concatenate(arrays)) == labels).mean())


@dataclass
class Pages:
    """What came of the digits of all pages."""

    found: int = 0
    right: int = 0
    extra: int = 0
    in_order: int = 0
    pages: int = 0

    def count(self, labels: npt.NDArray[np.int64], answers: npt.NDArray[np.int64], owners: list[int | None]) -> None:
        first = {number: answer for answer, number in reversed(list(zip(answers, owners, strict=True)))}
        first.pop(None, None)
        self.found += len(first)
        self.extra += len(owners) - len(first)
        self.right += sum(bool(labels[number] == answer) for number, answer in first.items() if number is not None)
        self.in_order += owners == list(range(len(labels)))
        self.pages += 1


def check_many(shown: Grey, labels: npt.NDArray[np.int64], look: Look) -> Pages:
    random = np.random.default_rng(SEED)
    pages = Pages()
    for cut in _slices(len(labels), PAGE_ROWS * PAGE_COLUMNS):
        file, places = page(shown[cut], look, random)
        boxes, arrays = digits.many(images.decode(file))
        pages.count(labels[cut], read(arrays), [owner(box, places) for box in boxes])
    return pages


def _slices(length: int, size: int) -> Iterator[slice]:
    return (slice(start, start + size) for start in range(0, length, size))


def accuracy_of_sound() -> float:
    """The held-out recordings as WAV files of 16 bits, chunked again."""
    held_out = make_recordings(toneact.HELD_OUT_RECORDINGS, toneact.HELD_OUT_CHUNKS, toneact.HELD_OUT_SEED)
    decoded = [audio.chunks(audio.decode(_wav(recording.ravel())), CHUNK) for recording in held_out.chunks]
    session = open_session(REPOSITORY / "toneact" / "1" / "model.onnx")
    right = 0
    state = np.zeros((len(decoded), toneact.STATE), np.float32)
    for number, chunk in enumerate(np.stack(decoded, 1)):
        probability, state = session.run(None, {"chunk": chunk, "state": state})
        right += int(((probability[:, 0] > 0.5) == (held_out.labels[:, number] > 0.5)).sum())
    return right / held_out.labels.size


def _wav(samples: Grey) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setparams((1, 2, RATE, 0, "NONE", ""))
        writer.writeframes(np.rint(samples * 32767).astype("<i2").tobytes())
    return file.getvalue()


def section(ones: list[float], manys: list[Pages], printed: float, sound: float) -> str:
    rows_of_one = "\n".join(f"| {look.text} | {share:.2%} |" for look, share in zip(LOOKS, ones, strict=True))
    rows_of_many = "\n".join(_row(look, pages) for look, pages in zip(LOOKS, manys, strict=True))
    return f"""\
What the models reach from the bytes of a file, decoded by `runners.uploads`. Written by
`python -m tests.small_service.training.check_preprocessing`, a part of `make train`, which exits with 1 below
{REQUIRED_OF_ONE:.0%} for `digits.one`, {REQUIRED_OF_MANY:.0%} for `digits.many` and {REQUIRED_OF_SOUND:.0%} for sound.

The {HELD_OUT} held-out digits, blown up to {SIZES[0]} to {SIZES[1]} pixels and put somewhere on a picture up to twice
as large, through `digits.one`:

| picture | read right |
|---|---|
{rows_of_one}

The same on pages of {PAGE_ROWS} lines of {PAGE_COLUMNS}, {PAGE_SIZES[0]} to {PAGE_SIZES[1]} pixels high, on uneven
lines, through `digits.many`. A digit that was not found counts as read wrong; *in order* are pages on which every digit
was found, in reading order, and nothing else:

| page | found of {HELD_OUT} | read right | found where none is | in order |
|---|---|---|---|---|
{rows_of_many}

The held-out recordings of `toneact` as WAV files of 16 bits, through `audio.decode` and `audio.chunks`:
{sound:.2%} of the chunks.

The constants of `preprocessing.digits` were chosen on the training images. All of these are strokes of the data set on
even light; shadows on the page were not tried. Printed digits, of the font
that comes with Pillow, are of another kind than those the model learned: {printed:.0%} of them are read right.
"""


def _row(look: Look, pages: Pages) -> str:
    right = f"{pages.right / HELD_OUT:.2%}"
    return f"| {look.text} | {pages.found} | {right} | {pages.extra} | {pages.in_order} of {pages.pages} |"


def main() -> int:
    held_out = read_digits()
    shown, labels = held_out.held_out_images[:, 0].numpy(), held_out.held_out_labels.numpy()
    ones, manys = [], []
    for look in LOOKS:
        ones.append(accuracy_of_one(shown, labels, look))
        manys.append(check_many(shown, labels, look))
        print(f"preprocessing: {look.text}: one {ones[-1]:.2%}, many {manys[-1]}", flush=True)
    sound = accuracy_of_sound()
    printed = accuracy_of_printed()
    print(f"preprocessing: printed {printed:.2%}, sound {sound:.2%}")
    least_of_many = min(pages.right / HELD_OUT for pages in manys)
    if min(ones) < REQUIRED_OF_ONE or least_of_many < REQUIRED_OF_MANY or sound < REQUIRED_OF_SOUND:
        print("preprocessing: less than required: nothing written")
        return 1
    write_section("preprocessing", section(ones, manys, printed, sound))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
