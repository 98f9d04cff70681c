import errno

import pytest

from sparklog.errors import (
    ObjectNotFoundError,
    StoreError,
    StoreFullError,
    StoreOutcomeUnknownError,
    StorePermissionError,
    StoreUnavailableError,
    UnsafeStoreError,
)
from sparklog.storage._answers import error_of_code
from sparklog.storage._s3_errors import is_taken, is_unsatisfiable_range, translate

exceptions = pytest.importorskip("botocore.exceptions")


def answer(status, code):
    response = {"Error": {"Code": code, "Message": "said so"}}
    if status:
        response["ResponseMetadata"] = {"HTTPStatusCode": status}
    return exceptions.ClientError(response, "PutObject")


def raised_from(error, cause):
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("status", "code", "op", "expected"),
    [
        (404, "NoSuchKey", "get", ObjectNotFoundError),
        (404, "", "get", ObjectNotFoundError),
        (0, "404", "get", ObjectNotFoundError),
        (404, "NoSuchBucket", "get", StoreError),
        (404, "NoSuchBucket", "create", StoreError),
        (404, "NoSuchUpload", "put", StoreOutcomeUnknownError),
        (404, "NoSuchUpload", "get", StoreError),
        (404, "XAdminUserNotFound", "get", StorePermissionError),
        (409, "ConditionalRequestConflict", "create", StoreUnavailableError),
        (409, "OperationAborted", "create", StoreUnavailableError),
        (429, "TooManyRequests", "create", StoreUnavailableError),
        (503, "SlowDown", "create", StoreUnavailableError),
        (503, "ServiceUnavailable", "get", StoreUnavailableError),
        (400, "RequestTimeout", "put", StoreUnavailableError),
        (403, "AccessDenied", "create", StorePermissionError),
        (403, "InvalidAccessKeyId", "get", StorePermissionError),
        (400, "ExpiredToken", "get", StorePermissionError),
        (507, "XMinioStorageFull", "put", StoreFullError),
        (500, "InternalError", "create", StoreOutcomeUnknownError),
        (200, "InternalError", "put", StoreOutcomeUnknownError),
        (502, "502", "put", StoreOutcomeUnknownError),
        (504, "504", "delete", StoreOutcomeUnknownError),
        (500, "InternalError", "get", StoreUnavailableError),
        (504, "504", "list", StoreUnavailableError),
        (501, "NotImplemented", "create", UnsafeStoreError),
        (501, "NotImplemented", "put", StoreError),
        (400, "InvalidRequest", "put", StoreError),
    ],
)
def test_answers_mean_what_their_code_says(status, code, op, expected):
    for error in (answer(status, code), raised_from(OSError(errno.EINVAL, "dressed up"), answer(status, code))):
        translated = translate(error, op, "s3://bucket/key")
        assert type(translated) is expected
        assert op in str(translated)
        assert "s3://bucket/key" in str(translated)


def test_a_taken_name_is_known_by_its_code_whatever_class_the_error_has():
    precondition = answer(412, "PreconditionFailed")
    assert is_taken(precondition)
    assert is_taken(raised_from(FileExistsError("moto, versitygw"), precondition))
    assert is_taken(raised_from(OSError(errno.EINVAL, "MinIO: pre-conditions …"), precondition))
    assert is_taken(answer(412, ""))
    assert not is_taken(FileExistsError("no answer behind it"))
    assert not is_taken(answer(409, "ConditionalRequestConflict"))


def test_an_error_that_was_only_being_handled_is_no_cause():
    lost = exceptions.ReadTimeoutError(endpoint_url="http://s3")
    lost.__context__ = answer(412, "PreconditionFailed")
    assert not is_taken(lost)
    assert type(translate(lost, "create", "s3://bucket/key")) is StoreOutcomeUnknownError


def test_a_range_behind_the_end():
    assert is_unsatisfiable_range(answer(416, "InvalidRange"))
    assert is_unsatisfiable_range(raised_from(OSError(errno.EINVAL, ""), answer(416, "")))
    assert not is_unsatisfiable_range(answer(404, "NoSuchKey"))


@pytest.mark.parametrize(
    "error",
    [
        exceptions.ReadTimeoutError(endpoint_url="http://s3"),
        exceptions.ConnectionClosedError(endpoint_url="http://s3"),
        exceptions.EndpointConnectionError(endpoint_url="http://s3", error=ConnectionResetError()),
        exceptions.EndpointConnectionError(endpoint_url="http://s3", error=ConnectionRefusedError()),
        exceptions.ConnectTimeoutError(endpoint_url="http://s3"),
        exceptions.HTTPClientError(error=RuntimeError("broken")),
        ConnectionResetError(errno.ECONNRESET, "reset"),
        TimeoutError(),
    ],
    ids=repr,
)
def test_silence_leaves_a_write_unknown_and_a_read_unavailable(error):
    for op in ("put", "create", "delete"):
        assert type(translate(error, op, "s3://bucket/key")) is StoreOutcomeUnknownError
    for op in ("get", "list"):
        assert type(translate(error, op, "s3://bucket/key")) is StoreUnavailableError


def test_missing_credentials_are_a_matter_of_rights():
    assert type(translate(exceptions.NoCredentialsError(), "get", "s3://bucket/key")) is StorePermissionError


def test_what_is_not_the_stores_doing_is_left_alone():
    assert translate(TypeError("a bug"), "get", "s3://bucket/key") is None


def test_no_password_of_an_endpoint_is_repeated():
    error = exceptions.EndpointConnectionError(endpoint_url="http://user:very-secret@host:9000/bucket")
    assert "very-secret" not in str(translate(error, "get", "s3://bucket/key"))
    assert "host:9000" in str(translate(error, "get", "s3://bucket/key"))


def test_one_key_of_a_bulk_delete_has_a_code_and_no_status():
    assert type(error_of_code("AccessDenied", 0, "no", "delete", "s3://bucket/key")) is StorePermissionError
    assert type(error_of_code("InternalError", 0, "no", "delete", "s3://bucket/key")) is StoreOutcomeUnknownError
