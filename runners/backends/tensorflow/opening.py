"""What a configuration says of how TensorFlow opens a model, and the program that it opens"""

from dataclasses import dataclass
from pathlib import Path

import tensorflow as tf

from ...errors import ConfigInvalid
from ...integers import MAX_THREADS
from ...repository.messages import ModelConfig
from ...repository.specification import parameter
from .graph_def import open_graph_def
from .program import Program
from .saved_model import open_saved_model

__all__ = ["Options", "open_program", "read_options", "set_threads"]

_GRAPH_DEF = "tensorflow_graphdef"


@dataclass(frozen=True)
class Options:
    """0 threads: what the environment of the process says"""

    tag: str
    signature: str
    intra_op_threads: int
    inter_op_threads: int


def read_options(config: ModelConfig, intra_op_threads: int = 0) -> Options:
    """intra_op_threads: where the configuration says nothing of them"""
    return Options(
        tag=_text(config, "TF_GRAPH_TAG"),
        signature=_text(config, "TF_SIGNATURE_DEF"),
        intra_op_threads=parameter(config, "TF_NUM_INTRA_THREADS", intra_op_threads, most=MAX_THREADS),
        inter_op_threads=parameter(config, "TF_NUM_INTER_THREADS", 0, most=MAX_THREADS),
    )


def set_threads(options: Options) -> None:
    """Before TensorFlow computes anything"""
    if options.intra_op_threads:
        tf.config.threading.set_intra_op_parallelism_threads(options.intra_op_threads)
    if options.inter_op_threads:
        tf.config.threading.set_inter_op_parallelism_threads(options.inter_op_threads)


def open_program(path: Path, config: ModelConfig, options: Options) -> Program:
    """A SavedModel, or a GraphDef"""
    if config.platform == _GRAPH_DEF or path.is_file():
        if options.signature:
            raise ConfigInvalid("parameter 'TF_SIGNATURE_DEF' is about a SavedModel, a GraphDef has no signatures")
        return open_graph_def(path, config)
    return open_saved_model(path, tag=options.tag, signature=options.signature)


def _text(config: ModelConfig, key: str) -> str:
    return config.parameters[key].string_value if key in config.parameters else ""
