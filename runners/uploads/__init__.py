"""
From the bytes that clients upload to pixels and samples, whatever the bytes are.

    from kushi.uploads import UnreadableImage, images

    pixels = images.decode_rgb(data)

One module per modality: `images`, `audio`. Each stands alone: NumPy and its decoder are all that it loads.
"""

from .errors import UnreadableAudio, UnreadableImage

__all__ = ["UnreadableAudio", "UnreadableImage"]
