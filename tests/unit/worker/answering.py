"""A server for the API, made of functions: what models are there, what was sent, what was logged."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from runners.worker.errors import TritonError, TritonModelException
from runners.worker.responses import RESPONSE_FINAL, InferenceResponse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from runners.worker.requests import InferenceRequest

Asked = Callable[["InferenceRequest"], "Iterable[InferenceResponse]"]


class Responses:
    """The responses of one call, until it is cancelled."""

    def __init__(self, responses: Iterable[InferenceResponse]) -> None:
        self._responses = iter(responses)
        self.cancelled = False

    def __iter__(self) -> Iterator[InferenceResponse]:
        return self

    def __next__(self) -> InferenceResponse:
        if self.cancelled:
            self._responses = iter(())
            self.cancelled = False
            return InferenceResponse(error=TritonError("cancelled", TritonError.CANCELLED))
        return next(self._responses)

    def cancel(self) -> None:
        self.cancelled = True


class AnsweringServer:
    def __init__(self) -> None:
        self.models: dict[str, Asked] = {}
        self.calls: list[tuple[InferenceRequest, bool]] = []
        self.sent: queue.SimpleQueue[tuple[Any, InferenceResponse | None, int]] = queue.SimpleQueue()
        self.gone: set[Any] = set()
        self.dropped_keys: list[Any] = []
        self.lines: list[tuple[str, str]] = []
        self.verbs: list[tuple[Any, ...]] = []
        self.ready: set[tuple[str, str]] = set()
        self.kinds: dict[str, str] = {}
        self.values: dict[Any, float] = {}
        self.buckets: dict[Any, list[float] | None] = {}
        self.dropped_metrics: list[Any] = []

    def infer(self, request: InferenceRequest, decoupled: bool) -> Responses:
        self.calls.append((request, decoupled))
        model = self.models.get(request.model_name())
        if model is None:
            error = TritonError(f"unknown model '{request.model_name()}'", TritonError.NOT_FOUND)
            return Responses([InferenceResponse(error=error)])
        return Responses(model(request))

    def send(self, request_key: Any, response: InferenceResponse | None, flags: int) -> None:
        if request_key in self.gone:
            raise TritonModelException("the asker has gone")
        self.sent.put((request_key, response, flags))

    def dropped(self, request_key: Any) -> None:
        self.dropped_keys.append(request_key)

    def is_cancelled(self, request_key: Any) -> bool:
        return request_key in self.gone

    def model_dir(self) -> str:
        return "/models/m/1"

    def instance_name(self) -> str:
        return "m_0"

    def log(self, level: str, text: str) -> None:
        self.lines.append((level, text))

    def load_model(self, name: str, config: str, files: Mapping[str, bytes]) -> None:
        self.verbs.append(("load", name, config, dict(files)))

    def unload_model(self, name: str, unload_dependents: bool) -> None:
        self.verbs.append(("unload", name, unload_dependents))

    def is_model_ready(self, name: str, version: str) -> bool:
        return (name, version) in self.ready

    def metric_family(self, name: str, description: str, kind: str) -> str:
        if self.kinds.setdefault(name, kind) != kind:
            raise TritonModelException(f"'{name}' is a {self.kinds[name]}")
        return name

    def metric(self, family: Any, labels: Mapping[str, str], buckets: Sequence[float] | None) -> Any:
        key = (family, *sorted(labels.items()))
        self.values.setdefault(key, 0.0)
        self.buckets[key] = None if buckets is None else list(buckets)
        return key

    def metric_change(self, metric: Any, verb: str, value: float) -> None:
        self.values[metric] = value if verb == "set" else self.values[metric] + value

    def metric_value(self, metric: Any) -> float:
        return self.values[metric]

    def metric_drop(self, handle: Any) -> None:
        self.dropped_metrics.append(handle)

    def ends(self) -> dict[Any, int]:
        """How often each request got its end by a sender."""
        counts: dict[Any, int] = {}
        while not self.sent.empty():
            key, _, flags = self.sent.get()
            counts[key] = counts.get(key, 0) + (flags == RESPONSE_FINAL)
        return counts
