"""
The exceptions of Kushi, and the one table that ties a kind of failure to its HTTP status and its class.

KushiError (.kind .status .retryable .model .request_id)
├── InvalidInput (ValueError)        ├── Overloaded                        ├── ConfigInvalid
├── ModelNotFound (LookupError)      ├── DeadlineExceeded (TimeoutError)   ├── EngineFailed
├── ModelNotReady                    ├── Unsupported                       ├── ConnectionLost (ConnectionError)
│   └── ModelUnavailable             ├── ShuttingDown                      ├── AccessDenied (PermissionError)
└── InternalError (a bug of ours)      cancelled calls raise asyncio.CancelledError

The kinds are those of the native core; a test holds the two lists together.
"""

from asyncio import CancelledError
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

__all__ = [
    "KINDS",
    "AccessDenied",
    "ConfigInvalid",
    "ConnectionLost",
    "DeadlineExceeded",
    "EngineFailed",
    "InternalError",
    "InvalidInput",
    "Kind",
    "KushiError",
    "ModelNotFound",
    "ModelNotReady",
    "ModelUnavailable",
    "Overloaded",
    "ShuttingDown",
    "Unsupported",
    "about",
    "factories",
    "not_shown",
]


class KushiError(Exception):
    """Any failure that Kushi reports"""

    kind: ClassVar[str]

    def __init__(
        self,
        message: str = "",
        *,
        model: str | None = None,
        request_id: str | None = None,
        status: int | None = None,
    ) -> None:
        # names of files need not be text, and all that hear of it take text alone
        super().__init__(message.encode("utf-8", "backslashreplace").decode())
        self.model = model
        self.request_id = request_id
        self._status = status

    @property
    def status(self) -> int:
        """The HTTP status that a client of the server sees for this failure: that of its kind, mostly"""
        return self._status or KINDS[self.kind].status

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later, or elsewhere"""
        return KINDS[self.kind].retryable


class InvalidInput(KushiError, ValueError):
    """A request or an argument that cannot be right, whatever the state of the server"""

    kind = "invalid_input"


class ModelNotFound(KushiError, LookupError):
    """No model, or no version of it, goes by that name"""

    kind = "model_not_found"


class AccessDenied(KushiError, PermissionError):
    """The server asks for a token that the request lacks"""

    kind = "access_denied"


class ModelNotReady(KushiError):
    """The model is known and does not serve yet"""

    kind = "model_not_ready"


class ModelUnavailable(ModelNotReady):
    """The version failed to load: waiting does not bring it"""

    kind = "model_unavailable"


class Overloaded(KushiError):
    """A queue is full"""

    kind = "overloaded"


class DeadlineExceeded(KushiError, TimeoutError):
    """The time allowed for the request passed before it was executed"""

    kind = "deadline_exceeded"


class EngineFailed(KushiError):
    """The framework that executes the model reported an error"""

    kind = "engine_failed"


class ConnectionLost(KushiError, ConnectionError):
    """The engine at the other end went away"""

    kind = "connection_lost"


class ConfigInvalid(KushiError):
    """A model repository, a model configuration or a setting is wrong"""

    kind = "config_invalid"


class Unsupported(KushiError):
    """Understood, and not offered by this version"""

    kind = "unsupported"


class ShuttingDown(KushiError):
    """The server is draining and takes no new requests"""

    kind = "shutting_down"


class InternalError(KushiError):
    """A bug in Kushi"""

    kind = "internal_error"


@dataclass(frozen=True)
class Kind:
    """What belongs to one kind of failure"""

    status: int
    retryable: bool
    raised: type[KushiError] | type[CancelledError]


KINDS: dict[str, Kind] = {
    "invalid_input": Kind(400, retryable=False, raised=InvalidInput),
    "model_not_found": Kind(404, retryable=False, raised=ModelNotFound),
    "access_denied": Kind(403, retryable=False, raised=AccessDenied),
    "model_not_ready": Kind(503, retryable=True, raised=ModelNotReady),
    "model_unavailable": Kind(503, retryable=False, raised=ModelUnavailable),
    "overloaded": Kind(503, retryable=True, raised=Overloaded),
    "deadline_exceeded": Kind(503, retryable=False, raised=DeadlineExceeded),
    "engine_failed": Kind(500, retryable=False, raised=EngineFailed),
    "connection_lost": Kind(503, retryable=True, raised=ConnectionLost),
    "config_invalid": Kind(400, retryable=False, raised=ConfigInvalid),
    "unsupported": Kind(501, retryable=False, raised=Unsupported),
    "shutting_down": Kind(503, retryable=True, raised=ShuttingDown),
    "internal_error": Kind(500, retryable=False, raised=InternalError),
    "cancelled": Kind(400, retryable=False, raised=CancelledError),
}


Factory = Callable[[str, str | None, str | None], BaseException]
"""message, model, request id → exception"""


def factories() -> dict[str, Factory]:
    """For each kind what the native core calls to make the exception that it raises"""
    return {kind: _factory(row.raised) for kind, row in KINDS.items()}


def _factory(raised: type[KushiError] | type[CancelledError]) -> Factory:
    def make(message: str, model: str | None, request_id: str | None) -> BaseException:
        if issubclass(raised, KushiError):
            return raised(message, model=model, request_id=request_id)
        return raised(message)

    return make


@contextmanager
def about(subject: object) -> Iterator[None]:
    """Puts `subject`, a file mostly, in front of the message of any failure inside"""
    try:
        yield
    except KushiError as error:
        raise type(error)(
            f"{subject}: {error}", model=error.model, request_id=error.request_id, status=error.status
        ) from error


def not_shown(source: str, expected: str) -> ConfigInvalid:
    """The error for a text of `source` that may hold a secret"""
    return ConfigInvalid(
        f"{source}: expected {expected}, got something else, not shown here because it may hold a secret"
    )
