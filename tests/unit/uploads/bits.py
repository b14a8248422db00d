"""Bits one after the other, as compressed formats have them"""

from __future__ import annotations

__all__ = ["Bits"]


class Bits:
    def __init__(self) -> None:
        self._bits: list[str] = []

    def put(self, number: int, count: int) -> None:
        """The lowest bit first, as WebP does"""
        self._bits.append(f"{number:0{count}b}"[::-1])

    def put_high(self, number: int, count: int) -> None:
        """The highest bit first, as JPEG does"""
        self._bits.append(f"{number:0{count}b}")

    def low_bytes(self) -> bytes:
        """The first bit is the lowest of the first byte"""
        bits = "".join(self._bits)
        return int(bits[::-1], 2).to_bytes(-(-len(bits) // 8), "little")

    def high_bytes(self) -> bytes:
        """The first bit is the highest of the first byte; the last byte is filled up with ones"""
        bits = "".join(self._bits)
        bits += "1" * (-len(bits) % 8)
        return int(bits, 2).to_bytes(len(bits) // 8, "big")
