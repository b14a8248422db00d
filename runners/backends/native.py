"""What the native core makes engines of: a class for each of its crates `engine-…`"""

from kushi_native import OnnxModel, PythonModel

__all__ = ["NativeModel"]

NativeModel = OnnxModel | PythonModel
