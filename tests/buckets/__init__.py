"""Repositories in buckets, of servers that speak as S3, Google Cloud Storage and Azure do."""
