"""Buckets, as far as no store is needed."""
