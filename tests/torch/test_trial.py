"""What a row of zeros shows of a PyTorch model as it is loaded."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
from torch import Tensor, nn

from runners.errors import ConfigInvalid
from tests.torch.models import fp32, loaded, model_config, put

if TYPE_CHECKING:
    from pathlib import Path


def test_a_model_that_gives_other_rows_than_it_takes_is_refused(repository: Path) -> None:
    class Summed(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.sum(0, keepdim=True).repeat(2, 1)

    put(repository, "m", Summed(), model_config("m", fp32("x"), fp32("o"), max_batch_size=8))
    with pytest.raises(
        ConfigInvalid, match=r"output 'o' has shape \[2, 4\] for one row, expected 1 in its first dimension"
    ):
        loaded(repository)


class Same(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x


class Deeper(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.unsqueeze(1)


class Sums(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.sum(1)


@pytest.mark.parametrize(
    ("made", "dims", "shapes"),
    [
        (Deeper(), [-1], r"\[1, 4\] without the batch, the configuration says \[-1\]"),
        (Sums(), [1], r"\[\] without the batch, the configuration says \[1\]"),
    ],
)
def test_an_output_of_another_rank_than_the_configuration_says_is_refused(
    repository: Path, made: nn.Module, dims: list[int], shapes: str
) -> None:
    put(repository, "m", made, model_config("m", fp32("x"), [("o", "FP32", dims)], max_batch_size=8))
    with pytest.raises(ConfigInvalid, match=shapes):
        loaded(repository)


def test_an_output_of_another_size_than_the_configuration_says_is_a_warning(
    repository: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(repository, "m", Same(), model_config("m", fp32("x"), [("o", "FP32", [7])], max_batch_size=8))
    loaded(repository)
    said = "'m' with zeros: output 'o' has shape [4] without the batch, the configuration says [7], and requests for"
    assert said in caplog.text


def test_a_model_that_refuses_zeros_is_loaded_with_a_warning(
    repository: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Picky(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if bool((x == 0).all()):
                raise ValueError("no zeros, please")
            return x

    put(repository, "m", Picky(), model_config("m", fp32("x"), fp32("o"), max_batch_size=8))
    with caplog.at_level(logging.WARNING):
        loaded(repository)
    assert "'m' cannot be tried with zeros: PyTorch execute failure:" in caplog.text
    assert "no zeros, please" in caplog.text
