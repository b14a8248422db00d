"""
THIRD_PARTY_LICENSES of the wheel kushi-native, which carries code of others: python -m deploy.supply.notices [--check]

For every crate that is linked, the texts of the licences that are chosen for it. Fails where one is not allowed.
"""

import re
import sys
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from .crates import ROOT, Crate, linked
from .licences import chosen, refused

__all__ = ["notices"]

_FILE: Final = ROOT / "native/crates/bindings/THIRD_PARTY_LICENSES"
_HEAD: Final = """\
The module kushi_native contains the crates below, under the licences below, and the standard library of Rust, which is
Copyright (c) The Rust Project contributors, under Apache-2.0 or MIT.
"""
# What a text of that licence says, and no other.
_MARKS: Final = {
    "Apache-2.0": "Apache License Version 2.0",
    "Apache-2.0 WITH LLVM-exception": "LLVM Exceptions to the Apache 2.0 License",
    "MIT": "Permission is hereby granted, free of charge",
    "ISC": "Permission to use, copy, modify, and/or distribute this software",
    "BSD-2-Clause": "Redistribution and use in source and binary forms",
    "BSD-3-Clause": "Neither the name of the copyright holder nor the names of its contributors",
    "Unicode-3.0": "UNICODE LICENSE V3",
    "Zlib": "Altered source versions must be plainly marked as such",
}
_LICENCE: Final = re.compile(r"licen[cs]e|copying", re.IGNORECASE)
_NOTICE: Final = re.compile(r"notice|licen[cs]e.third.party|licen[cs]e.boringssl", re.IGNORECASE)


def notices(crates: Iterable[Crate]) -> str:
    """The whole file: each text once, below all crates that have it"""
    having: dict[str, list[str]] = defaultdict(list)
    for crate in crates:
        for licence in sorted(chosen(crate.licence)):
            having[_text(crate, licence)].append(f"{crate.name} {crate.version} ({licence})")
        for path in sorted(crate.folder.iterdir()):
            if _NOTICE.match(path.name):
                having[path.read_text(encoding="utf-8").strip()].append(f"{crate.name} {crate.version} ({path.name})")
    parts = [_HEAD, *("\n".join([*names, "", text, ""]) for text, names in having.items())]
    return f"{'=' * 80}\n".join(parts)


def _text(crate: Crate, licence: str) -> str:
    if licence == "Apache-2.0":
        # the same for all
        return (ROOT / "LICENSE").read_text(encoding="utf-8").strip()
    for path in sorted(crate.folder.iterdir()):
        if _LICENCE.match(path.name):
            text = path.read_text(encoding="utf-8")
            if _MARKS[licence] in " ".join(text.split()):
                return text.strip()
    raise FileNotFoundError(f"no text of {licence} in {crate.folder}")


def main() -> int:
    """Writes the file, or says that it is not current"""
    crates = linked()
    if wrong := refused((crate.name, [crate.licence]) for crate in crates):
        print(*wrong, sep="\n", file=sys.stderr)
        return 1
    text = notices(crates)
    if "--check" not in sys.argv:
        _FILE.write_text(text, encoding="utf-8")
    elif text != _FILE.read_text(encoding="utf-8"):
        print(f"{_FILE.relative_to(ROOT)} is not current: make licences", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
