"""
PyTorch models: TorchScript archives and exported programs, run by PyTorch's own library in the process that loads them.

`backend` is the module that loads them; it and those that it stands on import PyTorch, the others, `descriptor`
among them, do not.
"""
