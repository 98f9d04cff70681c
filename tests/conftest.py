"""Fixtures for every test."""

from tests.s3_server import s3_endpoint, s3_options, s3_uri

__all__ = ["s3_endpoint", "s3_options", "s3_uri"]
