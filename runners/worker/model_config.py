"""The configuration of a model while `auto_complete_config` completes it, with Triton's checks and texts"""

from __future__ import annotations

import json
from typing import Any

__all__ = ["ModelConfig"]

_INPUT = ("name", "data_type", "dims", "optional")
_OUTPUT = ("name", "data_type", "dims")


class ModelConfig:
    """What a configuration says so far; what a file has said can be added to, and not changed"""

    __slots__ = ("_config",)

    def __init__(self, model_config: str) -> None:
        self._config: dict[str, Any] = json.loads(model_config)
        self._config.setdefault("name", "")
        self._config.setdefault("max_batch_size", 0)
        self._config.setdefault("input", [])
        self._config.setdefault("output", [])

    def as_dict(self) -> dict[str, Any]:
        """The configuration as it stands; to be read"""
        return self._config

    def as_json(self) -> str:
        """The configuration as it stands, as JSON"""
        return json.dumps(self._config)

    def set_max_batch_size(self, max_batch_size: int) -> None:
        """Say how many rows the model takes at once; a file may have said the same or less"""
        configured = self._config["max_batch_size"]
        if configured > max_batch_size:
            raise ValueError(
                f"configuration specified max_batch_size {configured}, but in auto-complete-config function for model "
                f"'{self._config['name']}' specified max_batch_size {max_batch_size}"
            )
        self._config["max_batch_size"] = max_batch_size

    def set_dynamic_batching(self) -> None:
        """Choose the dynamic batcher, where no other scheduler is chosen"""
        for other in ("sequence_batching", "ensemble_scheduling"):
            if other in self._config:
                raise ValueError(
                    f"Configuration specified scheduling_choice as '{other}', but auto-complete-config function for "
                    f"model '{self._config['name']}' tries to set scheduling_choice as 'dynamic_batching'"
                )
        self._config.setdefault("dynamic_batching", {})

    def set_model_transaction_policy(self, transaction_policy_dict: dict[str, Any]) -> None:
        """Say whether the model is decoupled"""
        name = self._config["name"]
        if any(key != "decoupled" for key in transaction_policy_dict):
            raise ValueError(
                f"model transaction property in auto-complete-config function for model '{name}' contains property "
                "other than 'decoupled'."
            )
        policy = self._config.setdefault("model_transaction_policy", {})
        for key, value in transaction_policy_dict.items():
            if policy.setdefault(key, value) != value:
                raise ValueError(
                    f"trying to change decoupled property in auto-complete-config for model '{name}', which is already "
                    f"set to '{policy[key]}'."
                )

    def add_input(self, input: dict[str, Any]) -> None:  # noqa: A002 - its name in the API
        """Add an input of this name, `data_type` and `dims`, and whether it is optional"""
        self._add("input", input, _INPUT)

    def add_output(self, output: dict[str, Any]) -> None:
        """Add an output of this name, `data_type` and `dims`"""
        self._add("output", output, _OUTPUT)

    def _add(self, side: str, tensor: dict[str, Any], properties: tuple[str, ...]) -> None:
        model = self._config["name"]
        of = f"in auto-complete-config function for model '{model}'"
        named = f"{side} '{tensor['name']}' {of}" if "name" in tensor else f"{side} {of}"
        if any(key not in properties for key in tensor):
            *first, last = (f"'{key}'" for key in properties)
            raise ValueError(f"{named} contains property other than {', '.join(first)} and {last}.")
        for key in ("name", "data_type", "dims"):
            if key not in tensor:
                raise ValueError(f"{named} is missing '{key}' property.")
        for configured in self._config[side]:
            if configured["name"] == tensor["name"]:
                self._check(side, configured, tensor)
                return
        self._config[side].append(tensor)

    def _check(self, side: str, configured: dict[str, Any], tensor: dict[str, Any]) -> None:
        """A tensor that is configured already cannot be another one for the model"""
        model = self._config["name"]
        if configured["data_type"] != tensor["data_type"]:
            raise ValueError(
                f"unable to load model '{model}', configuration expects datatype {configured['data_type']} for {side} "
                f"'{tensor['name']}', model provides {tensor['data_type']}"
            )
        if configured["dims"] != tensor["dims"]:
            raise ValueError(
                f"model '{model}', tensor '{tensor['name']}': the model expects dims {tensor['dims']} but the model "
                f"configuration specifies dims {configured['dims']}"
            )
