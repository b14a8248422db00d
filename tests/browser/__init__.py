"""The page of the engine, as people use it: in a real browser."""
