"""From a text to its tokens, filled up to a multiple of 16 so that requests share batches"""

from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils
from tokenizers import Tokenizer

LONGEST = 128
STEP = 16


class TritonPythonModel:
    def initialize(self, args):
        path = Path(args["model_repository"]) / args["model_version"] / "tokenizer.json"
        self.tokenizer = Tokenizer.from_file(str(path))
        self.tokenizer.enable_truncation(LONGEST)
        self.tokenizer.enable_padding(pad_to_multiple_of=STEP)

    def execute(self, requests):
        answers = []
        for request in requests:
            texts = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy().reshape(-1)
            made = self.tokenizer.encode_batch([text.decode() for text in texts])
            tensors = [
                pb_utils.Tensor("input_ids", np.array([one.ids for one in made], np.int64)),
                pb_utils.Tensor("attention_mask", np.array([one.attention_mask for one in made], np.int64)),
                pb_utils.Tensor("token_type_ids", np.array([one.type_ids for one in made], np.int64)),
            ]
            answers.append(pb_utils.InferenceResponse(tensors))
        return answers
