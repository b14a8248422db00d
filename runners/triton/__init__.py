"""What a program that was written for Triton's clients finds here under its own names"""

from .runner import TritonRunner

__all__ = ["TritonRunner"]
