"""What Kushi costs, always as a ratio to a floor measured in the same run. `python -m benchmarks` runs every part."""
