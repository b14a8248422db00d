"""The model repository: directories and config.pbtxt in, one frozen specification per model version out"""
