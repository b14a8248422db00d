"""A model file as a model of a repository, with a configuration to begin with: kushi init"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..completed_config import completed_config
from ..errors import ConfigInvalid, InvalidInput
from ..printable import printable
from ..repository.bare_copy import copy_bare
from ..repository.discovery import bare_backend, bare_files
from ..repository.layout import check_model_name
from ..repository.messages import ModelConfig, ModelInput, ModelOutput
from ..repository.tensors import TensorInfo, model_dims, protocol_type
from .configuration import configuration
from .place import Place, choose, stage

__all__ = ["write_starter"]

_ADVICE = """\
# More requests in a batch, for which the first one waits this long at most:
# dynamic_batching {{ max_queue_delay_microseconds: 500 }}
# How many instances execute at the same time, on CPUs:
# instance_group [ {{ kind: KIND_CPU count: {count} }} ]
# Of several versions the newest is served, unless this says otherwise:
# version_policy {{ all {{ }} }}
"""


def write_starter(file: Path, repository: Path, name: str, max_batch_size: int) -> Place:
    """
    `max_batch_size`: of a model that takes batches. What is written has been loaded; raises where it does not load, and
    then nothing is written
    """
    if not file.is_file():
        raise InvalidInput(f"'{file}': there is no such file")
    if not bare_backend(file):
        raise InvalidInput(f"'{file}' is no model: expected an {bare_files()} file")
    for each in (file.stem, name):
        check_model_name(each)
    if os.path.lexists(repository / name):
        raise InvalidInput(f"'{repository / name}' exists: choose another --name")
    place = choose(repository / name, 1, force=False)
    found = completed_config(file, {"": {"default-max-batch-size": str(max_batch_size)}})
    with stage(place) as staged:
        copied = copy_bare(file, staged.files)
        staged.config.write_text(_text(file, name, copied, found), encoding="utf-8")
        try:
            completed_config(staged.directory)
        except ConfigInvalid as error:
            raise ConfigInvalid(str(error).replace(str(staged.directory), str(place.directory))) from None
    return place


def _text(file: Path, name: str, copied: str, config: ModelConfig) -> str:
    batched = config.max_batch_size > 0
    inputs, outputs = (list(_tensors(tensors, batched=batched)) for tensors in (config.input, config.output))
    stated = configuration(name, config.max_batch_size, inputs, outputs, backend=config.backend)
    lines = [f"# Of {printable(file.name)}. `kushi config` shows it with all that a server fills in", stated.rstrip()]
    if Path(copied).stem == "model" and copied not in _defaults(file):
        lines.append(f'default_model_filename: "{copied}"')
    return "\n".join([*lines, _ADVICE.format(count=sum(group.count for group in config.instance_group))])


def _defaults(file: Path) -> tuple[str, ...]:
    backend = bare_backend(file)
    return backend.files if backend else ()


def _tensors(tensors: Iterable[ModelInput | ModelOutput], *, batched: bool) -> Iterator[TensorInfo]:
    for tensor in tensors:
        dims = model_dims(tensor)
        yield TensorInfo(tensor.name, protocol_type(tensor.data_type), (-1, *dims) if batched else dims)
