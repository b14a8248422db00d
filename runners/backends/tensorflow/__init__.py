"""Models of TensorFlow, in processes of their own: its runtime is never in the process of the server"""
