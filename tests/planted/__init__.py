"""Faults that tests/unit/test_tiers.py runs, to see that each is red at the first look. Nobody else collects them."""
