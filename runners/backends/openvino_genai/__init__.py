"""Generative models of OpenVINO GenAI: its pipeline makes tokens in a process of its own, all text is native"""
