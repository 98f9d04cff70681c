"""The store error that an S3 server's answer, or its silence, means.

Answers are told apart by their code and HTTP status, never by the class that s3fs makes of them: one and the same
412 shows as ``FileExistsError`` with one server and as ``OSError`` 22 with another.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any

from sparklog.errors import (
    ObjectNotFoundError,
    StoreError,
    StoreFullError,
    StoreOutcomeUnknownError,
    StorePermissionError,
    StoreUnavailableError,
    UnsafeStoreError,
)

__all__ = ["KeysRefused", "error_of_code", "is_answer", "is_taken", "is_unsatisfiable_range", "translate"]

_URL_USER = re.compile(r"//[^/@\s]*@")  # an endpoint's user and password
_WRITES = {"put", "create", "delete"}

# By code where several meanings share a status, or the status is that of a success.
_UNAVAILABLE_CODES = {
    "ConditionalRequestConflict",
    "OperationAborted",
    "RequestTimeout",  # 400: the body did not arrive in time
    "ServiceUnavailable",
    "SlowDown",
    "SlowDownRead",
    "SlowDownWrite",
    "Throttling",
    "ThrottlingException",
    "TooManyRequests",
}
_PERMISSION_CODES = {
    "AccessDenied",
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidToken",
    "RequestTimeTooSkewed",
    "SignatureDoesNotMatch",
    "TokenRefreshRequired",
}
_FULL_CODES = {"QuotaExceeded", "XMinioAdminBucketQuotaExceeded", "XMinioStorageFull"}
_NO_CREDENTIALS = {
    "CredentialRetrievalError",
    "NoAuthTokenError",
    "NoCredentialsError",
    "PartialCredentialsError",
    "ProfileNotFound",
    "TokenRetrievalError",
}


class KeysRefused(Exception):  # noqa: N818 - becomes a store error by translate
    """Some keys of a bulk delete weren't deleted. It stands for a refusal that lasts, if one of them does."""

    def __init__(self, bucket: str, rows: Sequence[Mapping[str, str]]) -> None:
        """
        Args:
            bucket: its URI.
            rows: the answer's errors, each with Key, Code and Message; at least one.
        """
        worst = min(rows, key=lambda row: error_of_code(row.get("Code", ""), 0, "", "delete", "").retriable)
        said = f"{worst.get('Message', '')} ({len(rows)} keys, {bucket}/{worst.get('Key', '')} among them)"
        super().__init__(said)
        self.response = {"Error": {"Code": worst.get("Code", ""), "Message": said}}


def is_taken(error: BaseException) -> bool:
    """Did the server say 412: a create-only put found its name taken?"""
    code, status, _ = _answer(error)
    return status == 412 or code == "PreconditionFailed"


def is_unsatisfiable_range(error: BaseException) -> bool:
    """Did the server say 416: the range begins at or after the object's end?"""
    code, status, _ = _answer(error)
    return status == 416 or code == "InvalidRange"


def is_answer(error: BaseException) -> bool:
    """Did the server answer, whatever it said?"""
    code, status, _ = _answer(error)
    return bool(code or status)


def translate(error: Exception, op: str, name: str) -> StoreError | None:
    """The store error for what s3fs raised; None for what isn't the store's doing and should be seen as it is.

    Args:
        op: get, list, put, create or delete; a lost answer matters for the last three.
        name: bucket and key, for the message.
    """
    code, status, said = _answer(error)
    if code or status:
        return error_of_code(code, status, said, op, name)
    message = _URL_USER.sub("//", f"{op} {name}: {type(error).__name__}: {error}")
    names = _class_names(error)
    if names & _NO_CREDENTIALS:
        return StorePermissionError(message)
    if names & {"ParamValidationError", "InvalidRegionError", "UnknownEndpointError", "SSLError"}:
        return StoreError(message)
    if names & {"BotoCoreError", "ResponseParserError", "ClientError"} or isinstance(
        error, (OSError, asyncio.TimeoutError)
    ):
        return _lost(message, op)
    return None


def error_of_code(code: str, status: int, said: str, op: str, name: str) -> StoreError:
    """The store error for an answer. ``status`` is 0 where there is none, as for one key of a bulk delete."""
    message = f"{op} {name}: {status or ''} {code}: {said}".replace(":  ", ": ")
    if code == "NoSuchBucket":
        return StoreError(f"{message}; the bucket is not there, sparklog doesn't make one")
    if code in _FULL_CODES or status == 507:
        return StoreFullError(message)
    if code in _UNAVAILABLE_CODES or status in {409, 429, 503}:
        return StoreUnavailableError(message)
    if code in _PERMISSION_CODES or status in {401, 403}:
        return StorePermissionError(message)
    if (code == "NoSuchKey" or status == 404) and op == "get":
        return ObjectNotFoundError(message)
    if code == "NotImplemented" or status == 501:
        if op == "create":
            return UnsafeStoreError(f"{message}; the server doesn't know If-None-Match")
        return StoreError(message)
    if code == "InternalError" or status >= 500:
        return _lost(message, op)
    return StoreError(message)


def _lost(message: str, op: str) -> StoreError:
    # That includes a refused connection: aiohttp sends a PUT a second time by itself when the connection broke, and
    # only the second attempt's error comes up to here. The first may have been carried out.
    if op in _WRITES:
        return StoreOutcomeUnknownError(f"{message}; it may have been carried out")
    return StoreUnavailableError(message)  # a read changes nothing, so only trying again is left


def _answer(error: BaseException) -> tuple[str, int, str]:
    """Code, HTTP status and message of the server's answer; ``("", 0, "")`` where there was none."""
    # Only causes are followed: Python sets a context to whatever error the caller was handling at the time, which may
    # be another call's 412.
    at: BaseException | None = error
    while at is not None:
        response = getattr(at, "response", None)
        if isinstance(response, Mapping):
            return _fields(response)
        at = at.__cause__
    return "", 0, ""


def _fields(response: Mapping[str, Any]) -> tuple[str, int, str]:
    details = response.get("Error", {})
    code = str(details.get("Code", ""))
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if not status and re.fullmatch(r"\d{3}", code):  # an answer without a body: the status is all there is
        status = int(code)
    return code, int(status or 0), str(details.get("Message", ""))


def _class_names(error: BaseException) -> set[str]:
    """Names of the classes of an error and of those it was made of. botocore keeps those in ``kwargs["error"]``."""
    names: set[str] = set()
    at: object = error
    while isinstance(at, BaseException):
        names.update(cls.__name__ for cls in type(at).__mro__)
        kwargs = getattr(at, "kwargs", None)
        at = at.__cause__ or (kwargs.get("error") if isinstance(kwargs, Mapping) else None)
    return names
