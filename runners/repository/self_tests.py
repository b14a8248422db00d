"""
What a configuration says of the self-test of its model: `kushi.self_test`, the rows that it is asked, and
`kushi.self_test_tolerance`, how far its answers may be from those of its runtime alone.
"""

from dataclasses import dataclass
from pathlib import Path

from ..errors import ConfigInvalid, Unsupported
from ..tolerance import Tolerance
from .descriptor import Descriptor
from .discovery import descriptor_of
from .ensemble import is_ensemble
from .files import is_within
from .messages import ModelConfig
from .said_here import ALTERNATIVE
from .tensors import protocol_type

__all__ = ["SELF_TEST", "SELF_TEST_TOLERANCE", "SelfTest", "check_can_be_tested", "read_self_test"]

SELF_TEST, SELF_TEST_TOLERANCE = "kushi.self_test", "kushi.self_test_tolerance"
_RANDOM = "random"
_HALVES = {"BF16", "FP16"}
_OF_HALVES = Tolerance(1e-2, 1e-2)


@dataclass(frozen=True)
class SelfTest:
    """samples: an .npz file, or None for random numbers; is_stated: in the configuration, and not of all models"""

    samples: Path | None
    tolerance: Tolerance
    is_stated: bool


def check_can_be_tested(config: ModelConfig, descriptor: Descriptor | None) -> None:
    """
    Raises where a self-test is wanted, and there is nothing to hold the model against: other than of a form among
    several, which serves without one
    """
    if SELF_TEST not in config.parameters or (descriptor and descriptor.alone) or ALTERNATIVE in config.parameters:
        return
    what = f"backend '{config.backend}'" if descriptor else "an ensemble"
    raise Unsupported(
        f"parameter '{SELF_TEST}' of model '{config.name}': {what} has no runtime of its own that its answers could be "
        "held against"
    )


def read_self_test(directory: Path, config: ModelConfig, *, of_all: bool = False) -> SelfTest | None:
    """
    That of the model in this directory; None where there is to be none. `of_all`: all models have one for which there
    is something that they can be held against
    """
    tolerance = _tolerance(config)
    is_stated = SELF_TEST in config.parameters
    if not (is_stated or of_all) or is_ensemble(config) or not descriptor_of(config.backend).alone:
        return None
    if not is_stated:
        return SelfTest(None, tolerance, is_stated=False)
    stated = config.parameters[SELF_TEST].string_value
    path = directory / stated
    if stated != _RANDOM and not (stated.endswith(".npz") and is_within(path, directory) and path.is_file()):
        raise ConfigInvalid(
            f"parameter '{SELF_TEST}' of model '{config.name}': expected '{_RANDOM}' or an .npz file inside the "
            f"directory of the model, got '{stated}'"
        )
    return SelfTest(None if stated == _RANDOM else path, tolerance, is_stated=True)


def _tolerance(config: ModelConfig) -> Tolerance:
    if SELF_TEST_TOLERANCE not in config.parameters:
        types = [*(one.data_type for one in config.input), *(one.data_type for one in config.output)]
        return _OF_HALVES if _HALVES & {*map(protocol_type, types)} else Tolerance()
    text = config.parameters[SELF_TEST_TOLERANCE].string_value
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < 1:
        raise ConfigInvalid(
            f"parameter '{SELF_TEST_TOLERANCE}' of model '{config.name}': expected a number from 0 up to 1, got "
            f"'{text}'"
        )
    return Tolerance(number, number)
