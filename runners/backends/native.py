"""What the native core makes engines of: a class for each of its crates `engine-…`, and the steps of an ensemble"""

from kushi_native import Ensemble, ForestModel, OnnxModel, OnnxTexts, OpenVinoCompiled, PythonModel, WorkerModel

__all__ = ["NativeModel"]

NativeModel = Ensemble | ForestModel | OnnxModel | OnnxTexts | OpenVinoCompiled | PythonModel | WorkerModel
