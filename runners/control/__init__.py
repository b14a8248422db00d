"""Which models are loaded: what is desired, what that takes, and how it is carried out"""
