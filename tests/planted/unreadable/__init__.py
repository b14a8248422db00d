"""A file that cannot be read, for tests/unit/test_tiers.py: whether anybody tries shows"""
