"""A backend whose models are formulas: a line for each output"""
