"""The network of a folder of sentence-transformers as ONNX: python -m benchmarks.peers.sentences_export FOLDER FILE"""

from __future__ import annotations

import sys
from typing import Any

import torch
from transformers import AutoModel

NAMES = ("input_ids", "attention_mask", "token_type_ids")


class Network(torch.nn.Module):
    def __init__(self, path: str) -> None:
        super().__init__()
        self.inner: Any = AutoModel.from_pretrained(path, attn_implementation="eager").eval()

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, token_type_ids: torch.Tensor
    ) -> torch.Tensor:
        answer = self.inner(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)
        hidden: torch.Tensor = answer.last_hidden_state
        return hidden


def main(folder: str, file: str) -> None:
    example = tuple(torch.ones((2, 7), dtype=torch.int64) for _ in NAMES)
    free = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=512)}
    torch.onnx.export(
        Network(folder),
        example,
        file,
        input_names=list(NAMES),
        output_names=["last_hidden_state"],
        dynamic_shapes=dict.fromkeys(NAMES, free),
        external_data=False,
        dynamo=True,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
