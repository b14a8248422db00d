"""ONNX models through ONNX Runtime's C API"""
