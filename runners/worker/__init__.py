"""
What runs in the process of a Python model: the API that its `model.py` imports, and the calls of its class.

It is started by the interpreter that the model asks for, so it stands on CPython 3.9, the standard library and NumPy
alone, and imports nothing else of this package.
"""
