"""One table for all clouds: the store error that a server's answer means, or that no answer means.

=========================  ======================================  =================================================
the request was            the server said                         error
=========================  ======================================  =================================================
refused, for now           409, 429, 503, SlowDown, ServerBusy     ``StoreUnavailableError``; of a create unknown all
                                                                   the same (decision 0008)
refused, for good          401, 403, codes of credentials          ``StorePermissionError``
refused, for good          507, codes of quotas                    ``StoreFullError``
refused, for good          no bucket, 501, other 4xx, 3xx          ``StoreError`` (501 to a create:
                                                                   ``UnsafeStoreError``)
carried out, or not        500, 502, 504, other 5xx, 408           a write: ``StoreOutcomeUnknownError``; a read:
                                                                   ``StoreUnavailableError``
carried out, or not        nothing: time-out, broken connection    the same
refused, the key is taken  412, BlobAlreadyExists                  none, :func:`is_taken_answer`: a create says so
=========================  ======================================  =================================================
"""

from __future__ import annotations

from sparklog.errors import (
    ObjectNotFoundError,
    StoreError,
    StoreFullError,
    StoreOutcomeUnknownError,
    StorePermissionError,
    StoreUnavailableError,
    UnsafeStoreError,
)

__all__ = ["error_of_code", "error_without_answer", "is_of_expired_credentials", "is_taken_answer"]

_WRITES = {"put", "create", "delete"}

# By code where several meanings share a status, or the status is that of a success.
_UNAVAILABLE_CODES = {
    "ConditionalRequestConflict",
    "OperationAborted",
    "RequestTimeout",  # 400: the body did not arrive in time
    "ServerBusy",
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
_EXPIRED_CODES = {"ExpiredToken", "InvalidAccessKeyId", "InvalidToken", "TokenRefreshRequired"}
"""The key was withdrawn, or its time is over: there may be another by now."""
_FULL_CODES = {"QuotaExceeded", "XMinioAdminBucketQuotaExceeded", "XMinioStorageFull"}
_NO_BUCKET_CODES = {"NoSuchBucket", "ContainerNotFound", "FilesystemNotFound"}
_TAKEN_CODES = {
    "PreconditionFailed",
    "BlobAlreadyExists",  # Azure, 409
    "UnauthorizedBlobOverwrite",  # Azure, 403: a signature that allows creating alone, where the name is taken
}


def is_taken_answer(code: str, status: int) -> bool:
    """Does the answer to a create-only put say that the name is taken? 304 is what RFC 9110 has for reads. A failure of
    the server says nothing of the name, whatever its code."""
    return status in (412, 304) or (code in _TAKEN_CODES and status < 500)


def is_of_expired_credentials(code: str, status: int) -> bool:
    """Does an answer refuse the credentials as such, so that newer ones may be accepted? Azure and Google say 401."""
    return code in _EXPIRED_CODES or status == 401


def error_of_code(code: str, status: int, said: str, op: str, name: str) -> StoreError:
    """The store error for an answer.

    Args:
        code: the cloud's word; empty where the answer has none.
        status: of HTTP; 0 where there is none, as for one key of a bulk delete.
        said: the server's message.
        op: get, list, put, create or delete.
        name: bucket and key, for the message.
    """
    message = f"{op} {name}: {status or ''} {code}: {said}".replace(":  ", ": ")
    if code in _NO_BUCKET_CODES:
        error = StoreError(f"{message}; the bucket is not there, sparklog doesn't make one")
        error.is_of_no_bucket = True
        return error
    if code in _FULL_CODES or status == 507:
        return StoreFullError(message)
    if code in _UNAVAILABLE_CODES or status in {409, 429, 503}:
        return StoreUnavailableError(message)
    if status >= 500 and status != 501:  # whatever the code: a proxy may have put the status there
        return error_without_answer(message, op)
    if code in _PERMISSION_CODES or status in {401, 403}:
        if code == "RequestTimeTooSkewed":
            message += "; the clocks of this machine and of the store differ by too much: set them right"
        if op == "get" and code in ("AccessDenied", ""):
            message += "; so S3 answers, too, where there is no such object and no right to list the bucket"
        return StorePermissionError(message)
    if (code == "NoSuchKey" or status == 404) and op in ("get", "delete"):
        return ObjectNotFoundError(message)
    if code == "NotImplemented" or status == 501:
        if op == "create":
            return UnsafeStoreError(f"{message}; the server doesn't know conditional puts")
        return StoreError(message)
    if code == "InternalError" or status == 408:
        return error_without_answer(message, op)
    if 300 <= status < 400:
        message += "; a redirection, which isn't followed: is the bucket in another region, or endpoint_url another's?"
    return StoreError(message)


def error_without_answer(message: str, op: str) -> StoreError:
    """The store error where nobody knows whether the request was carried out.

    That includes a refused connection: a client may send a PUT a second time by itself when the connection broke, and
    only the second attempt's error comes up to here.
    """
    if op in _WRITES:
        return StoreOutcomeUnknownError(f"{message}; it may have been carried out")
    return StoreUnavailableError(message)  # a read changes nothing, so only trying again is left
