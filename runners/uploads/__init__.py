"""
From the bytes that clients upload to pixels, text and samples, whatever the bytes are.

    from kushi.uploads import UnreadableUpload, images

    pixels = images.decode_rgb(data)

One module per modality: `documents`, `images`, `audio`. Each loads NumPy and its decoders, and nothing else.
"""

from .errors import UnreadableAudio, UnreadableDocument, UnreadableImage, UnreadableUpload

__all__ = ["UnreadableAudio", "UnreadableDocument", "UnreadableImage", "UnreadableUpload"]
