"""Python models: a class TritonPythonModel in a file of the user's, one process for each instance"""
