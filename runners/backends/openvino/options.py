"""What the parameters of config.pbtxt say about a network, in the words of Triton's OpenVINO backend"""

from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import ConfigInvalid, Unsupported
from ...integers import MAX_THREADS, integer
from ...repository.cores import CORES, core_sets
from ...repository.messages import ModelConfig
from ..files import ModelFiles

__all__ = ["NetworkOptions", "Properties", "check_cores_alone", "read_options"]

Properties = tuple[tuple[str, str], ...]
"""Names and values as OpenVINO takes them"""

_CPU = "CPU"
_HINTS = ("LATENCY", "THROUGHPUT", "CUMULATIVE_THROUGHPUT")


@dataclass(frozen=True)
class NetworkOptions:
    """Of a network, whatever it is compiled for"""

    device: str = _CPU
    stated: Properties = ()
    """What the configuration says, but for streams and threads"""
    streams: str = ""
    """As stated; empty where it is left to the number of instances"""
    threads: int = 0
    """Of all streams together; 0 where it is left open"""
    hint: str = ""
    extension: str | None = None
    reshape: bool = False
    skip_dynamic_batch: bool = False
    pad: bool = False
    keeps_cores: bool = False
    """Whether each instance stays on its cores, which OpenVINO's own threads do not"""

    @property
    def on_cpu(self) -> bool:
        """Whether the cores of this machine compute, and nothing chooses the device at run time"""
        return self.device == _CPU

    @property
    def divides_itself(self) -> bool:
        """Whether OpenVINO says how many runs there are at a time, and with how many threads"""
        return bool(self.hint or self.streams) or not self.on_cpu

    def threads_of(self, instances: int) -> int:
        """What the configuration gives each instance; 0 where it leaves that open"""
        runs = int(self.streams) if self.streams.isdecimal() else instances
        return -(-self.threads // runs)

    def on_caller(self) -> Properties:
        """For a network that computes on the thread that runs it"""
        return self._with(INFERENCE_NUM_THREADS="1", NUM_STREAMS="0")

    def in_streams(self, instances: int, threads: int) -> Properties:
        """For a network with threads of its own, so many for each instance"""
        if not self.divides_itself:
            return self._with(INFERENCE_NUM_THREADS=str(instances * threads), NUM_STREAMS=str(instances))
        stated = {"PERFORMANCE_HINT": self.hint, "NUM_STREAMS": self.streams}
        if self.threads:
            stated["INFERENCE_NUM_THREADS"] = str(self.threads)
        return self._with(**{key: value for key, value in stated.items() if value})

    def _with(self, **properties: str) -> Properties:
        # a thread stays where the system wants it
        pinning = {"ENABLE_CPU_PINNING": "NO"} if self.on_cpu else {}
        return tuple(sorted({**dict(self.stated), **pinning, **properties}.items()))


def read_options(config: ModelConfig, files: ModelFiles, devices: Sequence[str]) -> NetworkOptions:
    """Reads and checks the parameters of a model. `devices` are those that OpenVINO shows"""
    device = _device(config, devices)
    stated = {}
    compilation = _count(config, "COMPILATION_NUM_THREADS")
    if compilation:
        stated["COMPILATION_NUM_THREADS"] = str(compilation)
    if _text(config, "HINT_BF16") and not _is_yes(config, "HINT_BF16"):
        raise ConfigInvalid(f"expected the parameter 'HINT_BF16' to be YES, got {_text(config, 'HINT_BF16')}")
    if _is_yes(config, "HINT_BF16"):
        stated["INFERENCE_PRECISION_HINT"] = "bf16"
    elif device.startswith((_CPU, "GPU")):
        # OpenVINO itself would take BF16 on a CPU that has it, and FP16 on a GPU
        stated["INFERENCE_PRECISION_HINT"] = "f32"
    else:
        stated["EXECUTION_MODE_HINT"] = "ACCURACY"
    if "engine-cache-directory" in files.settings:
        stated["CACHE_DIR"] = files.output("openvino", "the cache of compiled networks")
    extension = _text(config, "CPU_EXTENSION_PATH")
    return NetworkOptions(
        device=device,
        stated=tuple(stated.items()),
        streams=_streams(config),
        threads=_count(config, "INFERENCE_NUM_THREADS"),
        hint=_hint(config),
        extension=files.library(extension, "parameter 'CPU_EXTENSION_PATH':") if extension else None,
        reshape=_is_yes(config, "RESHAPE_IO_LAYERS"),
        skip_dynamic_batch=_is_yes(config, "SKIP_OV_DYNAMIC_BATCHSIZE"),
        pad=_is_yes(config, "ENABLE_BATCH_PADDING"),
        keeps_cores=bool(core_sets(config)),
    )


def check_cores_alone(config: ModelConfig, options: NetworkOptions, instances: int) -> None:
    """Refuses cores of its own for a network that OpenVINO's threads compute: those are of all networks"""
    if not options.keeps_cores:
        return
    named = {"PERFORMANCE_HINT": options.hint, "NUM_STREAMS": options.streams, "TARGET_DEVICE": not options.on_cpu}
    if options.threads_of(instances) > 1:
        named["INFERENCE_NUM_THREADS"] = True
    if key := next((key for key, stated in named.items() if stated), None):
        raise Unsupported(
            f"parameter '{CORES}' of model '{config.name}' keeps each instance on its cores with one thread, and "
            f"'{key}' asks for threads of OpenVINO's, which all networks share: remove one of them; more instances "
            "('count') use more cores"
        )


def _text(config: ModelConfig, key: str) -> str:
    return config.parameters[key].string_value.strip() if key in config.parameters else ""


def _is_yes(config: ModelConfig, key: str) -> bool:
    text = _text(config, key).upper()
    if text not in {"", "YES", "NO"}:
        raise ConfigInvalid(f"expected the parameter '{key}' to be YES or NO, got {_text(config, key)}")
    return text == "YES"


def _count(config: ModelConfig, key: str) -> int:
    text = _text(config, key)
    number = integer(text, 0, MAX_THREADS) if text else 0
    if number is None:
        raise ConfigInvalid(f"expected the parameter '{key}' to be a non-negative number, got {text}")
    return number


def _streams(config: ModelConfig) -> str:
    text = _text(config, "NUM_STREAMS").upper()
    if text in {"", "AUTO", "NUMA"} or integer(text, 1, MAX_THREADS) is not None:
        return text
    raise ConfigInvalid(
        f"expected the parameter 'NUM_STREAMS' to be either AUTO/NUMA/<int_value>, got {_text(config, 'NUM_STREAMS')}"
    )


def _hint(config: ModelConfig) -> str:
    text = _text(config, "PERFORMANCE_HINT").upper()
    if text and text not in _HINTS:
        raise ConfigInvalid(
            f"expected the parameter 'PERFORMANCE_HINT' to be {'/'.join(_HINTS)}, got "
            f"{_text(config, 'PERFORMANCE_HINT')}"
        )
    return text


def _device(config: ModelConfig, devices: Sequence[str]) -> str:
    """A device, or one that chooses among others, as in AUTO:GPU,CPU"""
    device = _text(config, "TARGET_DEVICE").upper() or _CPU
    chooser, _, chosen = device.partition(":")
    named = chosen.split(",") if chosen else [] if chooser in {"AUTO", "MULTI", "HETERO", "BATCH"} else [device]
    families = {known.partition(".")[0] for known in devices}
    for name in named:
        # BATCH:CPU(4), MULTI:-GPU
        wanted = name.partition("(")[0].lstrip("-")
        if wanted not in {*devices, *families}:
            raise ConfigInvalid(
                f"parameter 'TARGET_DEVICE' of model '{config.name}': OpenVINO shows no device '{wanted}' here, it has "
                f"{', '.join(devices)}"
            )
    return device
