"""
What CI runs (`.ci/run`, `python3 -m tests.whole`): all parts, a table at their end, and what `build/ci` keeps.

Nothing here needs more than Python's standard library: the first part makes the environment that the others run in.
"""
