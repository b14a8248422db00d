"""No model"""
