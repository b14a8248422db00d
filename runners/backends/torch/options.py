"""What the parameters of config.pbtxt say about running a PyTorch model, in the words of Triton's backend"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module

from ...errors import ConfigInvalid, Unsupported
from ...integers import MAX_THREADS
from ...repository.isolation import ISOLATE
from ...repository.messages import ModelConfig
from ...repository.sizes import stated_sizes
from ...repository.specification import parameter
from ...repository.values import BOOLEANS, boolean
from .graph_plan import GRAPHS, PADDING, check_places

__all__ = ["TorchOptions", "check_applicable", "check_graphs", "check_sharing", "import_packages", "read_options"]

IMPORTS = "kushi.imports"
COMPILE = "kushi.compile"
REDUCE_OVERHEAD = "reduce-overhead"
COMPILE_MODES = ("default", REDUCE_OVERHEAD)
# they steer the interpreter of TorchScript, which exported programs do not use
_ABOUT_SCRIPTS = ("DISABLE_OPTIMIZED_EXECUTION", "ENABLE_JIT_EXECUTOR", "ENABLE_JIT_PROFILING", "ENABLE_TENSOR_FUSER")


@dataclass(frozen=True)
class TorchOptions:
    """`None` leaves it to PyTorch, or to the model; 0 threads to the policy"""

    inference_mode: bool
    optimized_execution: bool
    cudnn: bool
    cache_cleaning: bool
    weight_sharing: bool | None
    jit_executor: bool | None
    jit_profiling: bool | None
    tensor_fuser: bool | None
    intra_op_threads: int
    inter_op_threads: int
    compile: str
    """Nothing, or one of `COMPILE_MODES`"""
    graph_sizes: tuple[int, ...]
    pads_graphs: bool

    @property
    def graphs_asked_by(self) -> str:
        """The parameter that asks for CUDA graphs; nothing where none does"""
        if self.graph_sizes:
            return GRAPHS
        return COMPILE if self.compile == REDUCE_OVERHEAD else ""


def read_options(config: ModelConfig) -> TorchOptions:
    """The options of a model, each checked"""
    return TorchOptions(
        inference_mode=_switch(config, "INFERENCE_MODE") is not False,
        optimized_execution=_switch(config, "DISABLE_OPTIMIZED_EXECUTION") is not True,
        cudnn=_switch(config, "DISABLE_CUDNN") is not True,
        cache_cleaning=_switch(config, "ENABLE_CACHE_CLEANING") is True,
        weight_sharing=_switch(config, "ENABLE_WEIGHT_SHARING"),
        jit_executor=_switch(config, "ENABLE_JIT_EXECUTOR"),
        jit_profiling=_switch(config, "ENABLE_JIT_PROFILING"),
        tensor_fuser=_switch(config, "ENABLE_TENSOR_FUSER"),
        intra_op_threads=parameter(config, "INTRA_OP_THREAD_COUNT", 0, most=MAX_THREADS),
        inter_op_threads=parameter(config, "INTER_OP_THREAD_COUNT", 0, most=MAX_THREADS),
        compile=_compile_mode(config),
        graph_sizes=stated_sizes(config, GRAPHS),
        pads_graphs=_switch(config, PADDING) is True,
    )


def check_applicable(config: ModelConfig, *, is_script: bool) -> None:
    """Refuses what would be without effect on a model of this kind"""
    if is_script and COMPILE in config.parameters:
        raise Unsupported(
            f"parameter '{COMPILE}' of model '{config.name}' is about exported programs, and the model is TorchScript: "
            "remove it, or save the model with torch.export"
        )
    for key in _ABOUT_SCRIPTS:
        if key in config.parameters and not is_script:
            raise Unsupported(
                f"parameter '{key}' of model '{config.name}' is about TorchScript, and the model is an exported "
                "program: remove it"
            )


def check_sharing(config: ModelConfig, options: TorchOptions, instances: int) -> None:
    """Refuses weights that processes cannot share"""
    if options.weight_sharing and instances > 1:
        raise ConfigInvalid(
            f"parameter 'ENABLE_WEIGHT_SHARING' of model '{config.name}' is true, and its {instances} instances have "
            f"processes of their own ('{ISOLATE}'), each with its own weights: remove one of them"
        )


def import_packages(config: ModelConfig) -> None:
    """Imports the packages whose operators the file of a model needs, as torchvision or torch_tensorrt"""
    text = config.parameters[IMPORTS].string_value if IMPORTS in config.parameters else ""
    for name in filter(None, (part.strip() for part in text.split(","))):
        subject = f"parameter '{IMPORTS}' of model '{config.name}'"
        if not name.isidentifier():
            raise ConfigInvalid(f"{subject}: expected names of packages with commas between them, got '{text}'")
        try:
            import_module(name)
        except ImportError as error:
            raise Unsupported(f"{subject}: package '{name}' cannot be imported: {error}") from None


def check_graphs(config: ModelConfig, options: TorchOptions, places: Sequence[int | None]) -> None:
    """Refuses CUDA graphs where there is no GPU, and padding where there are no graphs"""
    asked_by = options.graphs_asked_by
    if PADDING in config.parameters and not asked_by:
        raise ConfigInvalid(f"parameter '{PADDING}' of model '{config.name}' needs '{GRAPHS}'")
    if asked_by:
        check_places(config, asked_by, places)


def _compile_mode(config: ModelConfig) -> str:
    text = config.parameters[COMPILE].string_value if COMPILE in config.parameters else ""
    if COMPILE in config.parameters and text not in COMPILE_MODES:
        raise ConfigInvalid(
            f"parameter '{COMPILE}' of model '{config.name}': expected {' or '.join(COMPILE_MODES)}, got '{text}'"
        )
    return text


def _switch(config: ModelConfig, key: str) -> bool | None:
    if key not in config.parameters:
        return None
    text = config.parameters[key].string_value
    value = boolean(text)
    if value is None:
        raise ConfigInvalid(f"parameter '{key}' of model '{config.name}': expected {BOOLEANS}, got '{text}'")
    return value
