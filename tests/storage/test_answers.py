"""What an answer of an object store means: definite, unknown, taken."""

from __future__ import annotations

import pytest

from sparklog.errors import StoreError, StoreOutcomeUnknownError, StorePermissionError, StoreUnavailableError
from sparklog.storage._answers import error_of_code, is_taken_answer


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        ("AccessDenied", 403, StorePermissionError),
        ("AccessDenied", 500, StoreOutcomeUnknownError),
        ("SignatureDoesNotMatch", 502, StoreOutcomeUnknownError),
        ("", 504, StoreOutcomeUnknownError),
        ("SlowDown", 503, StoreUnavailableError),
        ("ConditionalRequestConflict", 409, StoreUnavailableError),
    ],
)
def test_a_failure_of_the_server_is_no_refusal_whatever_its_code(code: str, status: int, error: type[StoreError]):
    assert type(error_of_code(code, status, "said", "create", "s3://b/k")) is error


def test_a_failure_of_the_server_does_not_say_that_a_name_is_taken():
    assert is_taken_answer("PreconditionFailed", 412)
    assert not is_taken_answer("PreconditionFailed", 500)
