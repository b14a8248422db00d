"""
A service to begin with: `kushi new`, which writes it, and `kushi demo`, which serves the reader of documents.

What is written imports the package as it is installed, `kushi`, and needs nothing of a checkout.
"""

from .reader import check_needed, digest, write_reader
from .service import write_service

__all__ = ["check_needed", "digest", "write_reader", "write_service"]
