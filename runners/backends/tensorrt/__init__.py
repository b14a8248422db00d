"""TensorRT: plans, executed through its Python package on the streams of CUDA's driver"""
