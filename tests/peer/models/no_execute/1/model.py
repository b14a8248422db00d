class TritonPythonModel:
    """Cannot do anything"""
