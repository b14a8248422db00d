"""Configurations for the tests, from the text that a user would write"""

from runners.repository.config import parse
from runners.repository.messages import ModelConfig
from runners.repository.tensors import TensorInfo

INPUT = 'input [ { name: "X" data_type: TYPE_FP32 dims: [ 4 ] } ]'
OUTPUT = 'output [ { name: "Y" data_type: TYPE_FP32 dims: [ 2 ] } ]'
ONNX = 'name: "m" backend: "onnxruntime" platform: "onnxruntime_onnx"'


def config(text: str) -> ModelConfig:
    return parse(text, "config.pbtxt")


def fp32(name: str, *dims: int) -> TensorInfo:
    return TensorInfo(name, "FP32", dims)
