"""Loads forests of decision trees: what they answer, and on how many threads"""

from functools import partial
from pathlib import Path

import kushi_native

from ...repository.complete import complete
from ...repository.messages import ModelConfig
from ...repository.specification import instances_of
from ...repository.tensors import model_dims, tensor_infos
from .. import Backend, Bound, Opened, Placed, Prepared
from ..cores import cores_for_all
from .options import ForestOptions, read_options
from .reading import format_of, read_forest

__all__ = ["OUTPUT", "ForestBackend", "answer_of"]

OUTPUT = "output__0"
_CONTRIBUTIONS = "treeshap_output"


class ForestBackend(Backend):
    """The native core's own forests"""

    def why_no_gpu(self) -> str:
        return "forests are executed on CPUs: the kind is KIND_CPU or KIND_AUTO"

    def prepare(self, model: Placed) -> Prepared:
        options = read_options(model.config)
        return Prepared(lambda path: _Opened(path, options), threads=options.threads)


class _Opened(Opened):
    """A forest that was read"""

    def __init__(self, path: Path, options: ForestOptions) -> None:
        self._forest = read_forest(path, options.format or format_of(path), unknown_fields=options.unknown_fields)
        self._options = options

    def complete(self, config: ModelConfig, default_max_batch_size: int) -> ModelConfig:
        model = self._model(config, threads=1)
        return complete(config, tensor_infos(model.inputs), tensor_infos(model.outputs), default_max_batch_size)

    def bind(self, config: ModelConfig) -> Bound:
        model = self._model(config, threads=1)
        return Bound(
            sessions=partial(self._sessions, config),
            threads=lambda: self._options.threads or max(1, cores_for_all(config) // instances_of(config)),
            inputs=tensor_infos(model.inputs),
            outputs=tensor_infos(model.outputs),
            inline=True,
            short_needs_one_thread=True,
        )

    def _sessions(self, config: ModelConfig, threads: int) -> list[kushi_native.ForestModel]:
        return [self._model(config, threads=threads)]

    def _model(self, config: ModelConfig, *, threads: int) -> kushi_native.ForestModel:
        return self._forest.model(
            answer_of(self._forest, self._options, config),
            threshold=self._options.threshold,
            contributions=any(tensor.name == _CONTRIBUTIONS for tensor in config.output),
            threads=threads,
        )


def answer_of(forest: kushi_native.Forest, options: ForestOptions, config: ModelConfig) -> str:
    """What the output has: "values", "probabilities" of both classes, or "class", its number"""
    is_classifier = forest.is_classifier if options.is_classifier is None else options.is_classifier
    if not is_classifier:
        return "values"
    if not options.probabilities:
        return "class"
    # of two classes, Triton's backend answers both probabilities where there is room for them
    sizes = [model_dims(tensor) for tensor in config.output if tensor.name == OUTPUT]
    return "probabilities" if forest.classes == 1 and sizes and sizes[0][-1:] == (2,) else "values"
