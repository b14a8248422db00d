"""The reader of documents as a model: `preprocessing/`, with calls to the other models of this repository."""

import asyncio
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import NamedTemporaryFile

import numpy as np
import triton_python_backend_utils as pb_utils

# where `preprocessing` lies: beside the repository
sys.path.append(str(Path(__file__).parents[3]))

from runners.errors import InvalidInput, Overloaded


class TritonPythonModel:
    def initialize(self, args):
        if find_spec("preprocessing") is None:
            raise FileNotFoundError(f"there is no 'preprocessing' beside '{Path(args['model_repository']).parent}'")
        self.known = (Path(args["model_repository"]).parent / "recogniser/characters.txt").read_text("utf-8")
        self.reader = None

    async def execute(self, requests):
        return [await self.answer(request) for request in requests]

    async def answer(self, request):
        try:
            document = await self.read(one(request, "document"), one(request, "ocr", b"auto").decode(errors="replace"))
        except InvalidInput as error:
            return failure(error, pb_utils.TritonError.INVALID_ARG)
        except Overloaded as error:
            return failure(error, pb_utils.TritonError.UNAVAILABLE)
        except ModelFailed as error:
            return pb_utils.InferenceResponse(error=error.said)
        made = await asyncio.to_thread(answers, document, request.requested_output_names())
        return pb_utils.InferenceResponse([strings(name, values) for name, values in made.items()])

    def begin(self):
        # what decodes and describes takes 20 MB, which a small server that is never asked need not have
        from preprocessing import words
        from preprocessing.reading import Reader
        from runners.upload_reader import UploadReader
        from runners.uploads import UnreadableUpload

        uploads = UploadReader(client_errors=UnreadableUpload, memory_bytes=512 * 2**20, patience=60)
        return Reader(run, uploads.read, words.characters(self.known), lambda *_: None)

    async def read(self, data, ocr):
        self.reader = self.reader or self.begin()
        if ocr not in {"auto", "always"}:
            raise InvalidInput(f'expected ocr to be "auto" or "always", got {ocr!r}')
        with NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            return await self.reader.document(Path(file.name), ocr)


class ModelFailed(Exception):
    def __init__(self, said):
        super().__init__(said.message())
        self.said = said


def answers(document, wanted):
    from preprocessing import markdown

    made = {
        "text": lambda: [document.text],
        "markdown": lambda: [markdown.of(document)],
        "pages": lambda: [page.model_dump_json() for page in document.pages],
    }
    return {name: made[name]() for name in wanted}


async def run(model, inputs):
    """All outputs of a model of this server"""
    tensors = [pb_utils.Tensor(name, array) for name, array in inputs.items()]
    asked = pb_utils.InferenceRequest(model_name=model, requested_output_names=[], inputs=tensors)
    response = await asked.async_exec()
    if response.has_error():
        raise ModelFailed(response.error())
    return {tensor.name(): tensor.as_numpy() for tensor in response.output_tensors()}


def one(request, name, default=None):
    """The only string of an input"""
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    if tensor is None:
        return default
    (value,) = tensor.as_numpy()
    return value


def strings(name, values):
    return pb_utils.Tensor(name, np.array([value.encode() for value in values], object))


def failure(error, code):
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error), code))
