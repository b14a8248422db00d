"""What sentence-transformers and transformers write beside a network about the texts that it takes"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...bounded_json import read_json
from ...errors import ConfigInvalid, Unsupported
from ...repository.files import read_file

__all__ = ["POOLINGS", "TextFiles"]

POOLINGS = ("mean", "cls", "max", "last", "none")
_BY_MODE = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "last",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
}
_BY_NAME = {"lasttoken": "last"}
_CONFIG = "config.json"
_MODULES = "modules.json"
_SENTENCES = "sentence_bert_config.json"
_OF_CROSS_ENCODERS = "sbert_ce_default_activation_function"
_FUNCTIONS = {"Identity": "none", "Sigmoid": "sigmoid", "Softmax": "softmax"}
"""Of PyTorch, as cross-encoders name what becomes of their scores"""
_NO_LIMIT = 1_000_000
"""Transformers writes far more where there is no limit"""


class TextFiles:
    """Those in the directory of a version; one that is not there says nothing"""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def pooling(self) -> str:
        path = self._directory / self._pooling_folder() / _CONFIG
        if not path.is_file():
            return "mean"
        stated = _read_object(path)
        modes = [
            _BY_MODE.get(key, key) for key, value in stated.items() if key.startswith("pooling_mode") and value is True
        ]
        if isinstance(mode := stated.get("pooling_mode"), str):
            modes.append(_BY_NAME.get(mode, mode))
        if len(modes) != 1 or modes[0] not in POOLINGS:
            named = " and ".join(modes) or "nothing"
            raise Unsupported(f"'{path}' wants {named}, expected one of {', '.join(_BY_MODE.values())}")
        return modes[0]

    def activation_of_vectors(self) -> str:
        """As the modules say behind the network and its pooling; without them, vectors have the length 1"""
        path = self._directory / _MODULES
        if not path.is_file():
            return "normalize"
        kinds = [_kind(module) for module in self._modules()]
        if odd := [kind for kind in kinds if kind not in {"Normalize", "Pooling", "Transformer"}]:
            raise Unsupported(f"'{path}' has a module {odd[0]}, which is not supported")
        return "normalize" if "Normalize" in kinds else "none"

    def activation_of_scores(self, count: int) -> str:
        """Of cross-encoders what sentence-transformers says, of others what transformers does by itself"""
        stated = self._object(_CONFIG)
        own = stated.get("sentence_transformers")
        function = own.get("activation_fn") if isinstance(own, dict) else None
        function = function or stated.get(_OF_CROSS_ENCODERS)
        if isinstance(function, str):
            if function.rpartition(".")[2] not in _FUNCTIONS:
                path = self._directory / _CONFIG
                raise Unsupported(f"'{path}' wants {function}, expected one of {', '.join(_FUNCTIONS)}")
            return _FUNCTIONS[function.rpartition(".")[2]]
        match stated.get("problem_type"):
            case "regression":
                return "none"
            case "multi_label_classification":
                return "sigmoid"
        return "sigmoid" if count == 1 else "softmax"

    def longest(self) -> int | None:
        """Tokens of a text; None: the tokenizer's own file may say it"""
        for file, key in ((_SENTENCES, "max_seq_length"), ("tokenizer_config.json", "model_max_length")):
            stated = self._object(file).get(key)
            if isinstance(stated, int) and 0 < stated < _NO_LIMIT:
                return stated
        return None

    def lower_case(self) -> bool:
        """Whether letters become small ones before all else"""
        return self._object(_SENTENCES).get("do_lower_case") is True

    def prompts(self) -> tuple[Mapping[str, str], str | None]:
        """What may be put before texts, by names, and the name of what is put there where nothing is said"""
        stated = self._object("config_sentence_transformers.json")
        listed = stated.get("prompts")
        prompts = listed if isinstance(listed, dict) else {}
        usual = stated.get("default_prompt_name")
        named = {name: text for name, text in prompts.items() if isinstance(text, str)}
        return named, usual if isinstance(usual, str) else None

    def dimensions(self) -> Sequence[int] | None:
        """To which numbers a vector may be cut: none, any where it is empty, or these"""
        stated = self._object(_CONFIG)
        listed = stated.get("matryoshka_dimensions")
        if isinstance(listed, list) and listed and all(type(number) is int and number > 0 for number in listed):
            return listed
        return () if stated.get("is_matryoshka") is True else None

    def labels(self, count: int) -> Sequence[str]:
        """Of so many classes, as far as all of them have one"""
        stated = self._object(_CONFIG).get("id2label")
        if not isinstance(stated, dict) or set(stated) != {str(number) for number in range(count)}:
            return ()
        return [str(stated[str(number)]) for number in range(count)]

    def _pooling_folder(self) -> str:
        """As the modules say, or as it is called mostly"""
        found = [module for module in self._modules() if _kind(module) == "Pooling"]
        named = str(found[0].get("path", "")) if found else ""
        return named if named and "/" not in named and named != ".." else "1_Pooling"

    def _modules(self) -> Sequence[Mapping[str, Any]]:
        path = self._directory / _MODULES
        read = _read(path) if path.is_file() else []
        return [module for module in read if isinstance(module, dict)] if isinstance(read, list) else []

    def _object(self, file: str) -> Mapping[str, Any]:
        path = self._directory / file
        return _read_object(path) if path.is_file() else {}


def _kind(module: Mapping[str, Any]) -> str:
    return str(module.get("type", "")).rpartition(".")[2]


def _read_object(path: Path) -> Mapping[str, Any]:
    read = _read(path)
    return read if isinstance(read, dict) else {}


def _read(path: Path) -> object:
    try:
        return read_json(read_file(path, "configuration"))
    except (ValueError, RecursionError) as error:
        raise ConfigInvalid(f"'{path}' is no JSON: {error}") from None
