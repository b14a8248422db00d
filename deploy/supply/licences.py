"""The licences that may be shipped, and what their expressions choose"""

from collections.abc import Iterable
from typing import Final

from license_expression import AND, OR, LicenseExpression, get_spdx_licensing

__all__ = ["ALLOWED", "LicenceRefused", "chosen", "refused"]

# The first ones are chosen where there is a choice.
ALLOWED: Final = (
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "MIT",
    "ISC",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSD-3-Clause-Clear",
    "0BSD",
    "CC0-1.0",
    "MIT-CMU",
    "MPL-2.0",
    "PSF-2.0",
    "Python-2.0",
    "Unicode-3.0",
    "Zlib",
)
# Names that older packages give instead
_NAMES: Final = {
    "License :: OSI Approved :: Apache Software License": "Apache-2.0",
    "License :: OSI Approved :: BSD License": "BSD-3-Clause",
    "License :: OSI Approved :: MIT License": "MIT",
    "License :: OSI Approved :: Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
# Packages whose metadata state it in words; read in the text that they come with
_READ: Final = {
    "protobuf": "BSD-3-Clause",
    # what PDFium is made of comes with texts of the kinds above, and with those of FreeType and of the IJG
    "pypdfium2": "BSD-3-Clause AND Apache-2.0",
    "python-rapidjson": "MIT",
    "simple-di": "Apache-2.0",
}
_SPDX: Final = get_spdx_licensing()


class LicenceRefused(Exception):
    """None of the licences that are offered may be shipped"""


def chosen(expression: str) -> frozenset[str]:
    """The licences that are complied with, of an expression such as `(MIT OR Apache-2.0) AND Unicode-3.0`"""
    # crates of old write a slash
    return _choose(_SPDX.parse(expression.replace("/", " OR "), validate=True))


def refused(packages: Iterable[tuple[str, Iterable[str]]]) -> list[str]:
    """What must not be shipped, of packages with all licences that they state"""
    found = []
    for name, stated in packages:
        expressions = [*stated] or [_READ.get(name, "none")]
        try:
            for expression in expressions:
                chosen(_NAMES.get(expression, expression))
        except Exception as error:  # noqa: BLE001 - what cannot be read is refused, too
            found.append(f"{name}: {' and '.join(expressions)} is not on the list of allowed licences ({error})")
    return found


def _choose(expression: LicenseExpression) -> frozenset[str]:
    if isinstance(expression, AND):
        return frozenset().union(*map(_choose, expression.args))
    if isinstance(expression, OR):
        return min(_offers(expression), key=lambda one: max(map(ALLOWED.index, one)))
    if str(expression) not in ALLOWED:
        raise LicenceRefused(str(expression))
    return frozenset({str(expression)})


def _offers(expression: LicenseExpression) -> list[frozenset[str]]:
    offers = []
    for one in expression.args:
        try:
            offers.append(_choose(one))
        except LicenceRefused:
            continue
    if not offers:
        raise LicenceRefused(str(expression))
    return offers
