"""Uploads read in a process of its own: `UploadReader`, and what runs in that process."""

from .reader import UploadReader

__all__ = ["UploadReader"]
