"""Fixtures for every test."""

from hypothesis import settings

from tests.s3_server import s3_endpoint, s3_options, s3_uri

__all__ = ["s3_endpoint", "s3_options", "s3_uri"]

settings.register_profile("sparklog", deadline=None)  # no test asserts how long something takes
settings.load_profile("sparklog")
