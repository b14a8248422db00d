"""
From the bytes that clients upload to the arrays that models take, and from the arrays they answer to what was meant.

One module per modality: `images` and `digits`, `audio`. Functions of their arguments and nothing else: no files, no
models, no state. Whatever the bytes are, a function answers or raises the one exception of its modality.
"""

from .errors import UnreadableAudio, UnreadableImage

__all__ = ["UnreadableAudio", "UnreadableImage"]
