"""How tests run: the tier of each, their order, what is kept of a run, and what is asked twice."""
