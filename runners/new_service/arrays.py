"""A service that asks any model, with arrays as JSON"""

from __future__ import annotations

import json
import keyword
import math
import re
from typing import TYPE_CHECKING, Final

from ..errors import Unsupported
from .folder import Names, Written, fill, inside, literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .model import Described, Values

__all__ = ["written"]

_TYPES: Final = {
    "BOOL": "bool_",
    "FP16": "float16",
    "FP32": "float32",
    "FP64": "float64",
    **{f"{kind}{bits}": f"{kind.lower()}{bits}" for kind in ("INT", "UINT") for bits in (8, 16, 32, 64)},
}
"""The names that NumPy has for those of the protocol"""
_TEXT: Final = "BYTES"
# what service.py calls so itself, and what BentoML and pydantic call the fields of a request
_TAKEN: Final = {
    *("self", "ctx", "context", "arrays", "copy", "dict", "json", "media_type", "mime_type", "multipart_fields"),
    *("schema", "schema_json", "validate", "construct"),
}
_TAKEN_BEGINNINGS: Final = ("from_", "model_", "openapi_", "parse_", "to_", "update_")
_MOST_SHOWN: Final = 16


def written(model: Described, names: Names) -> Written:
    # Python wants those first that have to be there
    ordered = sorted(model.inputs, key=lambda one: one.is_optional)
    inputs = dict(zip(_parameters(ordered), ordered, strict=True))
    values = {
        "service": names.service,
        "model": literal(model.name),
        "title": inside(model.name),
        "types": "\n".join(dict.fromkeys(filter(None, map(_type, model.inputs)))),
        "parameters": "".join(f", {each}: {_parameter_type(one)}" for each, one in inputs.items()),
        "given": ", ".join(f"{literal(one.name)}: {each}" for each, one in inputs.items()),
        "described": inside(f"{_listed(model.inputs)} → {_listed(model.outputs)}"),
        "examples": ", ".join(f"{each}={_example(one)}" for each, one in inputs.items() if not one.is_optional),
        "outputs": ", ".join(literal(one.name) for one in model.outputs),
    }
    return Written(
        files={
            "service.py": fill("arrays/service.py.txt", values),
            "preprocessing/arrays.py": fill("arrays/arrays.py.txt", values),
            "test_service.py": fill("arrays/test_service.py.txt", values),
        },
        packages=("numpy",),
        ask=_asked(inputs),
    )


def _parameters(inputs: Iterable[Values]) -> list[str]:
    """A name for each that Python takes"""
    found: list[str] = []
    for one in inputs:
        name = re.sub(r"\W+", "_", one.name, flags=re.ASCII).strip("_") or "x"
        if not name.isidentifier():
            name = f"x_{name}"
        if keyword.iskeyword(name) or name in _TAKEN:
            name += "_"
        if name.startswith(_TAKEN_BEGINNINGS):
            name = f"the_{name}"
        while name in found:
            name += "_"
        found.append(name)
    return found


def _type(values: Values) -> str:
    """The line that says what BentoML makes of JSON for it; none for texts"""
    if values.datatype == _TEXT:
        return ""
    return f'{_type_name(values)} = Annotated[np.ndarray, DType("{_TYPES[values.datatype]}")]'


def _parameter_type(values: Values) -> str:
    return f"{_type_name(values)} | None = None" if values.is_optional else _type_name(values)


def _type_name(values: Values) -> str:
    if values.datatype == _TEXT:
        return "list[Any]"
    if values.datatype not in _TYPES:
        raise Unsupported(f"the input '{values.name}' is of {values.datatype}, which has no form in JSON")
    return f"{_TYPES[values.datatype].removesuffix('_').capitalize()}s"


def _listed(values: Iterable[Values]) -> str:
    return ", ".join(f"{one.name} {one.datatype} {list(one.shape)}" for one in values)


def _smallest(values: Values) -> list[int]:
    return [max(each, 1) for each in values.shape]


def _example(values: Values) -> str:
    shape = tuple(_smallest(values))
    if values.datatype == _TEXT:
        return f'np.full({shape}, "text").tolist()'
    return f'np.zeros({shape}, "{_TYPES[values.datatype]}")'


def _asked(inputs: Mapping[str, Values]) -> str:
    if sum(math.prod(_smallest(one)) for one in inputs.values()) > _MOST_SHOWN:
        return "# ask it as test_service.py does, or with the form at http://localhost:3000"
    body = {each: _zeros(_smallest(one), one.datatype) for each, one in inputs.items()}
    return f"curl -H 'Content-Type: application/json' -d '{json.dumps(body)}' localhost:3000/predict"


def _zeros(shape: list[int], datatype: str) -> object:
    if not shape:
        return "text" if datatype == _TEXT else 0
    return [_zeros(shape[1:], datatype) for _ in range(shape[0])]
