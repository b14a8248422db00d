"""Loads ONNX models: what the configuration says of sessions and accelerators, the first session, how many threads"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import kushi_native

from ...errors import Unsupported
from ...repository.complete import complete
from ...repository.cores import CORES, cores_of_instances
from ...repository.layout import model_file
from ...repository.messages import ModelConfig
from ...repository.tensors import tensor_infos
from .. import Backend, Bound, Opened, Placed, Prepared
from ..measure import example_shapes, measured_threads
from .accelerators import check_accelerators, providers_at
from .batch_sizes import batch_sizes
from .files import ModelFiles
from .library import start
from .options import SessionOptions, read_options
from .sessions import Place, Sessions
from .texts import TextOptions, is_of_texts, measured_batch_tokens, read_text_options
from .values import Provider

__all__ = ["OnnxBackend"]


class OnnxBackend(Backend):
    """ONNX Runtime, through its C API"""

    def __init__(self, settings: Mapping[str, str]) -> None:
        super().__init__(settings)
        self._runtime = start(settings)

    def gpus(self) -> Sequence[int]:
        return self._runtime.gpus()

    def why_no_gpu(self) -> str:
        return self._runtime.why_no_gpu()

    def prepare(self, model: Placed) -> Prepared:
        shared = self._runtime.global_threads
        check_accelerators(model.config, model.places, self._runtime)
        files = ModelFiles(model.source, model.version, self.settings)
        gpus = [place for place in model.places if place is not None]
        options = read_options(model.config, files, gpus, shared)
        providers = {place: providers_at(model.config, place, files) for place in model.places}
        cores = cores_of_instances(model.config)
        if cores and shared is not None:
            raise Unsupported(
                f"parameter '{CORES}' of model '{model.config.name}' cannot hold where all models share their threads: "
                "remove it, or leave out --backend-config=onnxruntime,enable-global-threadpool=1"
            )
        own_threads = shared is None and (options.intra_op_threads > 1 or options.parallel)

        def open_(path: Path) -> Opened:
            sessions = Sessions(path, options, providers, own_threads=own_threads, cores=cores)
            opened = _Opened(sessions, options, providers, model.places, path)
            return opened.of_texts(model.config) if opened.takes_texts(model.config) else opened

        return Prepared(open_, threads=options.intra_op_threads if shared is None else 1)

    def locate(self, directory: Path, name: str) -> Path:
        """A directory of that name holds the model beside its data"""
        return model_file(directory, name, inside="model.onnx")


class _Opened(Opened):
    """A model with its first session: on the CPU, if an instance is there that no accelerator serves"""

    def __init__(
        self,
        sessions: Sessions,
        options: SessionOptions,
        providers: Mapping[Place, tuple[Provider, ...]],
        places: Sequence[Place],
        path: Path,
    ) -> None:
        self._sessions = sessions
        self._path = path
        self._options = options
        self._providers = providers
        self._places = places
        self._first = next((place for place in places if not providers[place]), places[0])
        self._model = sessions.probe(places, self._first)
        self._inputs, self._outputs = tensor_infos(self._model.inputs), tensor_infos(self._model.outputs)

    def takes_texts(self, config: ModelConfig) -> bool:
        """Whether it is to be served as a model of texts"""
        on_cpu = self._places[0] is None and len({*self._places}) == 1 and not any(self._providers.values())
        return is_of_texts(config, self._path, self._inputs, self._outputs, on_cpu=on_cpu)

    def of_texts(self, config: ModelConfig) -> Opened:
        """The same network as a model that takes texts"""
        return _OfTexts(self._sessions, self._model, read_text_options(config, self._path, self._outputs))

    def complete(self, config: ModelConfig, default_max_batch_size: int) -> ModelConfig:
        return complete(config, self._inputs, self._outputs, default_max_batch_size)

    def bind(self, config: ModelConfig) -> Bound:
        # on all GPUs the same
        kinds = {place is None: providers for place, providers in self._providers.items()}
        sizes = {on_cpu: batch_sizes(config, providers, self._path) for on_cpu, providers in kinds.items()}
        return Bound(
            sessions=partial(
                self._sessions.open,
                self._places,
                sizes=lambda place: sizes[place is None],
                rehearse=partial(self._rehearse, config),
            ),
            threads=partial(self._threads, config),
            inputs=self._inputs,
            outputs=self._outputs,
            inline=not self._options.parallel and not any(self._providers.values()),
        )

    def _rehearse(self, config: ModelConfig, session: kushi_native.OnnxModel, rows: int) -> None:
        session.rehearse(example_shapes(config, self._inputs, rows=rows))

    def _threads(self, config: ModelConfig) -> int:
        accelerated = bool(self._providers[self._first])
        stated = self._options.intra_op_threads
        return stated or (1 if accelerated else measured_threads(self._model, config, self._inputs))


class _OfTexts(Opened):
    """A network with its tokenizer. Its instances share one session, and the texts of all requests"""

    def __init__(self, sessions: Sessions, network: kushi_native.OnnxModel, options: TextOptions) -> None:
        self._sessions = sessions
        self._options = options
        self._model = options.open(network)
        self._batch_tokens = options.batch_tokens or measured_batch_tokens(network, self._model.longest)

    def complete(self, config: ModelConfig, default_max_batch_size: int) -> ModelConfig:
        return self._options.complete(config, self._model.width, default_max_batch_size)

    def bind(self, config: ModelConfig) -> Bound:
        self._options.check(config, self._model.width)
        return Bound(sessions=self._open)

    def _open(self, threads: int) -> Sequence[kushi_native.OnnxTexts]:
        (network,) = self._sessions.open([None], threads)
        return [self._model.on(network, self._batch_tokens)]
