"""`kushi.isolate`: whether a model that Python would execute in the process of the server has processes of its own"""

from ..errors import ConfigInvalid, Unsupported
from .descriptor import Descriptor
from .messages import ModelConfig

__all__ = [
    "IN_PROCESS",
    "ISOLATE",
    "OF_PROCESSES",
    "check_isolation",
    "check_stays_outside",
    "is_in_processes",
    "is_isolated",
]

ISOLATE = "kushi.isolate"
IN_PROCESS = "kushi.inprocess"
OF_PROCESSES = ("kushi.execute_timeout", "kushi.max_requests")
"""Parameters of every model that has processes of its own"""


def is_isolated(config: ModelConfig) -> bool:
    """What the configuration says"""
    if ISOLATE not in config.parameters:
        return False
    text = config.parameters[ISOLATE].string_value
    if text not in {"true", "false"}:
        raise ConfigInvalid(f"parameter '{ISOLATE}' of model '{config.name}' must be 'true' or 'false', got '{text}'")
    return text == "true"


def is_in_processes(config: ModelConfig, descriptor: Descriptor) -> bool:
    """Whether an object of Python's executes the model, and does so outside the process of the server"""
    always = descriptor.executed_by == "Python in processes"
    return always or (descriptor.executed_by == "Python" and is_isolated(config))


def check_stays_outside(config: ModelConfig) -> None:
    """Refuses a model that nobody vouches for, and that would bring its own code into the process of the server"""
    if IN_PROCESS in config.parameters and config.parameters[IN_PROCESS].string_value != "false":
        raise ConfigInvalid(
            f"parameter '{IN_PROCESS}' of model '{config.name}' brings its code into the process of the server, which "
            "--model-trust=none does not allow"
        )


def check_isolation(config: ModelConfig, descriptor: Descriptor | None) -> None:
    """Refuses it where it cannot be; without a descriptor the model is an ensemble"""
    if not is_isolated(config):
        return
    of = f"parameter '{ISOLATE}' of model '{config.name}'"
    if descriptor is None:
        raise Unsupported(f"{of}: an ensemble executes nothing by itself, isolate the models of its steps")
    if descriptor.executed_by == "native code":
        raise Unsupported(
            f"{of}: models of backend '{descriptor.name}' are executed by native code of the server, only what Python "
            "executes can be isolated"
        )
