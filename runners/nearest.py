"""What a word was meant to be that nobody knows"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

__all__ = ["hint", "nearly"]

_NEARLY = 0.75
"""How much alike a free word and one of ours must be for a mistake to be likely"""


def hint(word: str, known: Iterable[str]) -> str:
    """The end of a refusal: what was meant, or else what there is, of the family alone where `word` names one"""
    names = list(known)
    relatives = _family(word, names)
    near = _nearest(word, names, relatives, 0.6)
    return f"did you mean '{near}'?" if near else f"expected one of {', '.join(relatives.values() or names)}"


def nearly(word: str, known: Iterable[str]) -> str | None:
    """That of `known` which a word that may be anything was probably meant to be"""
    names = list(known)
    return _nearest(word, names, _family(word, names), _NEARLY)


def _family(word: str, names: Iterable[str]) -> Mapping[str, str]:
    """Of a word with a dot: the names with the same part before it, by their rest"""
    first, dot, _ = word.partition(".")
    return {name.partition(".")[2]: name for name in names if dot and name.startswith(f"{first}.")}


def _nearest(word: str, names: Iterable[str], relatives: Mapping[str, str], cutoff: float) -> str | None:
    # that words of a family begin alike says nothing about which of them was meant
    if relatives:
        near = get_close_matches(word.partition(".")[2], relatives, n=1, cutoff=cutoff)
        return relatives[near[0]] if near else None
    near = get_close_matches(word, names, n=1, cutoff=cutoff)
    return near[0] if near else None
