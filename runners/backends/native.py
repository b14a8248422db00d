"""What the native core makes engines of: a class for each of its crates `engine-…`, and the steps of an ensemble"""

from kushi_native import (
    Ensemble,
    ForestModel,
    GenerativeModel,
    OnnxModel,
    OnnxTexts,
    OpenVinoCompiled,
    PythonModel,
    WorkerModel,
)

__all__ = ["NativeModel"]

NativeModel = (
    Ensemble | ForestModel | GenerativeModel | OnnxModel | OnnxTexts | OpenVinoCompiled | PythonModel | WorkerModel
)
