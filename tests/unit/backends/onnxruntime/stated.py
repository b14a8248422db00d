"""What config.pbtxt says of accelerators, and the providers that come of it."""

from collections.abc import Callable

from runners.backends.onnxruntime.accelerators import providers_at
from runners.backends.onnxruntime.files import ModelFiles
from tests.unit.text import ONNX, config

__all__ = ["Files", "accelerator", "parameter", "providers"]

Files = Callable[..., ModelFiles]


def accelerator(name: str, place: str = "gpu", **parameters: str) -> str:
    stated = " ".join(f'parameters {{ key: "{key}" value: "{value}" }}' for key, value in parameters.items())
    inside = f'{place}_execution_accelerator {{ name: "{name}" {stated} }}'
    return f"optimization {{ execution_accelerators {{ {inside} }} }}"


def parameter(key: str, value: str) -> str:
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}'


def providers(files: Files, text: str, gpu: int | None = 0) -> list[tuple[str, dict[str, str]]]:
    made = providers_at(config(f"{ONNX} {text}"), gpu, files())
    return [(provider.accelerator, dict(provider.options)) for provider in made]
