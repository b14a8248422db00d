"""The two ways in which an upload can be wrong. The text is meant for the client who sent it."""

__all__ = ["UnreadableAudio", "UnreadableImage"]


class UnreadableImage(ValueError):
    """Bytes that are no image, an image that is too large, or one without what was looked for"""


class UnreadableAudio(ValueError):
    """Bytes that are no recording, or a recording that is too long"""
