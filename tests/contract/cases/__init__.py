"""ONE table of what the protocol says about requests that cannot be served: the request, the status, the whole text.

``request`` is an ``Infer`` where the case means the same on every transport, and an ``Http`` where it is about JSON or
HTTP. ``code`` is the protocol's error code; each transport maps it to a status of its own. Each module has the rows of
one story; a new one is listed here.
"""

from __future__ import annotations

from typing import Final

from tests.contract.cases.case import Case, Code, Http
from tests.contract.cases.codings import UNDECODED_CASES
from tests.contract.cases.elements import element_cases
from tests.contract.cases.framing import FRAMING_CASES
from tests.contract.cases.generate import GENERATE_CASES
from tests.contract.cases.inputs import INPUT_CASES
from tests.contract.cases.limits import LIMIT_CASES
from tests.contract.cases.members import MEMBER_CASES
from tests.contract.cases.models import MODEL_CASES
from tests.contract.cases.outputs import UNSUPPORTED_CASES
from tests.contract.cases.raw import RAW_CASES
from tests.contract.cases.repository import DISABLED_CASES, EXPLICIT_CASES, REPOSITORY_CASES
from tests.contract.cases.settings import SETTING_CASES
from tests.contract.cases.shared_memory import SHARED_MEMORY_CASES
from tests.contract.cases.syntax import SYNTAX_CASES
from tests.contract.cases.tensors import STRING_CASES, TENSOR_CASES

__all__ = ["CASES", "EXPLICIT_CASES", "Case", "Code", "Http"]

CASES: Final = [
    *MODEL_CASES,
    *INPUT_CASES,
    *TENSOR_CASES,
    *STRING_CASES,
    *MEMBER_CASES,
    *element_cases(),
    *SYNTAX_CASES,
    *FRAMING_CASES,
    *UNSUPPORTED_CASES,
    *UNDECODED_CASES,
    *RAW_CASES,
    *SHARED_MEMORY_CASES,
    *REPOSITORY_CASES,
    *DISABLED_CASES,
    *SETTING_CASES,
    *GENERATE_CASES,
    *LIMIT_CASES,
]
"""The table."""
