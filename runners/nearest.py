"""What a word was meant to be that nobody knows"""

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["hint"]


def hint(word: str, known: Iterable[str]) -> str:
    """The end of a refusal: what was meant, or else what there is, of the family alone where `word` names one"""
    names = list(known)
    family, _, rest = word.partition(".")
    relatives = {name.partition(".")[2]: name for name in names if "." in name and name.partition(".")[0] == family}
    # that words of a family begin alike says nothing about which of them was meant
    near = [relatives[found] for found in get_close_matches(rest, relatives, n=1)]
    if not relatives:
        near = get_close_matches(word, names, n=1)
    return f"did you mean '{near[0]}'?" if near else f"expected one of {', '.join(relatives.values() or names)}"
