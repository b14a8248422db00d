"""The routes of texts as tests ask them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tests.serving import Server

RERANK: Final = ("/rerank", "/v1/rerank", "/v2/rerank")
CONFIG: Final = """
backend: "python" max_batch_size: 4
input { name: "TEXT" data_type: TYPE_STRING dims: [1] }
output { name: "OUT" data_type: TYPE_FP32 dims: [2] }
"""
"""Of a Python model that takes texts"""


def ask(server: Server, path: str, **body: object) -> Any:  # noqa: ANN401 - JSON
    answer = server.post(path, json.dumps(body).encode())
    assert answer.status == 200, answer.body
    return answer.json()


def refused(server: Server, path: str, body: object) -> tuple[int, dict[str, Any]]:
    answer = server.post(path, body if isinstance(body, bytes) else json.dumps(body).encode())
    found = answer.json()
    assert list(found) == ["error"]
    assert list(found["error"]) == ["message", "type", "param", "code"]
    return answer.status, found["error"]


def vectors(answer: Any) -> NDArray[np.float32]:  # noqa: ANN401 - JSON
    assert [one["index"] for one in answer["data"]] == list(range(len(answer["data"])))
    return np.array([one["embedding"] for one in answer["data"]], np.float32)
