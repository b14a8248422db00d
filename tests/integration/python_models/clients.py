"""The clients that a test has opened"""

from tritonclient.http import InferenceServerClient

__all__ = ["OPENED"]

OPENED: list[InferenceServerClient] = []
