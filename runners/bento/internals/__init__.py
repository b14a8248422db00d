"""
What we take from inside BentoML: names that are no part of its public API, and what it does with ours. Nothing else in
this repository knows them, so that another BentoML is dealt with here. What each is for: docs/adr/0007.

Importing it looks whether they are there.
"""

from .needed import check

__all__: list[str] = []

check()
