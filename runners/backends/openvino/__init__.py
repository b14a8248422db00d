"""OpenVINO, through its C API"""
