"""What the server and the processes of an isolated model tell each other before the first batch, as plain values"""

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..errors import KINDS, ConfigInvalid, EngineFailed, KushiError
from ..repository.layout import ModelSource
from ..repository.messages import ModelConfig
from ..repository.tensors import TensorInfo
from .device_limits import DeviceLimits
from .fitting import Fitted
from .native import NativeModel
from .steps import Bound, NotYet, Placed

__all__ = ["Order", "Plain", "in_processes", "plain_error", "plain_fitted", "read_fitted"]

Plain = dict[str, Any]


@dataclass(frozen=True)
class Order:
    """A version that is to be opened"""

    source: ModelSource
    config: ModelConfig
    version: int
    settings: Mapping[str, str]
    limits: DeviceLimits
    auto_complete: bool

    def to_plain(self) -> Plain:
        """As it is sent"""
        source = self.source
        return {
            "name": source.name,
            "path": str(source.path.absolute()),
            "versions": {version: str(path.absolute()) for version, path in source.versions.items()},
            "config_file": str(source.config_file.absolute()) if source.config_file else "",
            "config": _plain_config(self.config),
            "version": self.version,
            "settings": dict(self.settings),
            "limits": self.limits.to_plain(),
            "auto_complete": self.auto_complete,
        }

    @staticmethod
    def of(plain: Plain) -> "Order":
        """As it was sent"""
        source = ModelSource(
            name=plain["name"],
            path=Path(plain["path"]),
            versions={int(version): Path(path) for version, path in plain["versions"].items()},
            config_file=Path(plain["config_file"]) if plain["config_file"] else None,
        )
        return Order(
            source,
            _config(plain["config"]),
            plain["version"],
            plain["settings"],
            DeviceLimits.of(plain["limits"]),
            auto_complete=plain["auto_complete"],
        )


def plain_fitted(fitted: Fitted) -> Plain:
    """What a process has found; its sessions stay there"""
    bound = fitted.bound
    return {
        "config": _plain_config(fitted.model.config),
        "places": [*fitted.model.places],
        "by_themselves": [*fitted.model.by_themselves],
        "threads": fitted.threads,
        "inputs": _plain_tensors(bound.inputs),
        "outputs": _plain_tensors(bound.outputs),
        "may_be_silent": bound.may_be_silent,
    }


def in_processes(error: KushiError) -> KushiError:
    """The error as a process of its own says it: what it would take long to make is not made"""
    return ConfigInvalid(error.in_processes) if isinstance(error, NotYet) else error


def plain_error(error: KushiError) -> Plain:
    """Why a process has found nothing"""
    error = in_processes(error)
    return {"kind": error.kind, "error": str(error)}


def read_fitted(plain: Plain, order: Order) -> Fitted:
    """What a process has found, without sessions. Raises what it has raised"""
    if "error" in plain:
        raised = KINDS[plain["kind"]].raised
        raise raised(plain["error"])
    config, places, by_themselves = _config(plain["config"]), tuple(plain["places"]), tuple(plain["by_themselves"])
    model = Placed(order.source, order.version, config, places, by_themselves)
    threads: int = plain["threads"]
    bound = Bound(
        sessions=_none,
        threads=lambda: threads,
        inputs=_tensors(plain["inputs"]),
        outputs=_tensors(plain["outputs"]),
        may_be_silent=plain["may_be_silent"],
    )
    return Fitted(model, bound, threads)


def _none(_threads: int) -> Sequence[NativeModel]:
    raise EngineFailed("an isolated model has no sessions in this process")


def _plain_config(config: ModelConfig) -> str:
    return b64encode(config.SerializeToString()).decode()


def _config(text: str) -> ModelConfig:
    config = ModelConfig()
    config.ParseFromString(b64decode(text))
    return config


def _plain_tensors(tensors: Iterable[TensorInfo] | None) -> list[Plain] | None:
    return None if tensors is None else [asdict(tensor) for tensor in tensors]


def _tensors(plain: Iterable[Plain] | None) -> list[TensorInfo] | None:
    return None if plain is None else [TensorInfo(**{**one, "dims": tuple(one["dims"])}) for one in plain]
