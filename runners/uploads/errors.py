"""What can be wrong with an upload. The text is meant for the client who sent it."""

__all__ = ["UnreadableAudio", "UnreadableDocument", "UnreadableImage", "UnreadableUpload"]


class UnreadableUpload(ValueError):
    """Bytes that are not what was asked for, or that would take too much to read"""


class UnreadableImage(UnreadableUpload):
    """Bytes that are no image, an image that is too large, or one without what was looked for"""


class UnreadableDocument(UnreadableUpload):
    """Bytes that are no document, a document of too many pages, or one that is locked"""


class UnreadableAudio(UnreadableUpload):
    """Bytes that are no recording, or a recording that is too long"""
