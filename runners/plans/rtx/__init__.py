"""Plans of TensorRT for RTX: built and looked into, never served"""
