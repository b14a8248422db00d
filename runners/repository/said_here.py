"""Parameters of a configuration that Kushi alone says: what a file or a load says of them does not count"""

__all__ = ["ALTERNATIVE", "SAID_HERE", "SELF_TESTED"]

ALTERNATIVE, SELF_TESTED = "kushi.alternative", "kushi.self_tested"
"""The form that is served, of a model that has several, and why; what came of a self-test"""
SAID_HERE = frozenset({ALTERNATIVE, SELF_TESTED})
