"""The store error that an S3 server's answer, or its silence, means.

Answers are distinguished by their code and HTTP status, never by the class that s3fs makes of them: one and the same
412 shows as ``FileExistsError`` with one server and as ``OSError`` 22 with another.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any

from sparklog.errors import StoreError, StorePermissionError
from sparklog.storage._answers import error_of_code, error_without_answer, is_taken_answer

__all__ = ["KeysRefused", "is_answer", "is_taken", "is_unsatisfiable_range", "translate"]

_URL_USER = re.compile(r"//[^/@\s]*@")  # an endpoint's user and password
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
    return is_taken_answer(code, status)


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
        return error_without_answer(message, op)
    return None


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
    if code == str(status):
        code = ""
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
