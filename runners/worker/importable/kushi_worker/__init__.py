"""
The package around this directory, under a name of its own: where a model runs, nothing above it need be importable.

So it has that name in processes that a model starts, too, to which Python gives the path of its own process.
"""

from pathlib import Path

__path__ = [str(Path(__file__).resolve().parent.parent.parent)]
