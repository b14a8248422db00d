"""Repositories in the buckets of S3, Google Cloud Storage and Azure: what is listed there, and copies of it here"""
