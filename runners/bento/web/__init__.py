"""The HTTP side of a service: what stands before BentoML's application, and what takes the place of parts of it"""
