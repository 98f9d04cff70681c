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
not there                  404 with the code of a missing object   of a get or delete ``ObjectNotFoundError``; with
                                                                   another code, or none, ``StoreError``
of a spoiled upload        NoSuchUpload, InvalidPart, …            ``StoreOutcomeUnknownError``: another attempt may
                                                                   have completed it
carried out, or not        500, 502, 504, other 5xx, 408           a write: ``StoreOutcomeUnknownError``; a read:
                                                                   ``StoreUnavailableError``
carried out, or not        nothing: time-out, broken connection    the same
refused, the key is taken  412, BlobAlreadyExists                  none, :func:`is_taken_answer`: a create says so
=========================  ======================================  =================================================

A refusal whose code is none of :data:`OWN_CODES` may be that of a proxy, which has passed the request on before.
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

__all__ = [
    "OWN_CODES",
    "error_of_code",
    "error_without_answer",
    "is_of_expired_credentials",
    "is_taken_answer",
    "needs_settling",
]

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
    "XAdminUserNotFound",  # versitygw, 404: it doesn't know the key's owner
}
_EXPIRED_CODES = {
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidToken",
    "TokenRefreshRequired",
    "XAdminUserNotFound",
}
"""The key was withdrawn, or its time is over: there may be another by now."""
_FULL_CODES = {"QuotaExceeded", "XMinioAdminBucketQuotaExceeded", "XMinioStorageFull"}
_NO_BUCKET_CODES = {"NoSuchBucket", "ContainerNotFound", "FilesystemNotFound"}
_MISSING_CODES = {"NoSuchKey", "BlobNotFound", "PathNotFound"}
"""With status 404: there is no such object. PathNotFound is Azure's, with a hierarchical namespace."""
_SPOILED_UPLOAD_CODES = {"NoSuchUpload", "InvalidPart", "InvalidPartOrder"}
OWN_CODES = frozenset(
    _PERMISSION_CODES
    | _FULL_CODES
    | _NO_BUCKET_CODES
    | {
        "AccountIsDisabled",
        "AccountProblem",
        "AllAccessDisabled",
        "AuthenticationFailed",
        "AuthenticationRequired",
        "AuthorizationFailure",
        "AuthorizationHeaderMalformed",
        "AuthorizationPermissionMismatch",
        "BadDigest",
        "BillingDisabled",
        "EntityTooLarge",
        "InsufficientAccountPermissions",
        "InvalidArgument",
        "InvalidAuthenticationInfo",
        "InvalidBucketName",
        "InvalidBucketState",
        "InvalidDigest",
        "InvalidHeaderValue",
        "InvalidObjectName",
        "InvalidObjectState",
        "InvalidRequest",
        "InvalidResourceName",
        "InvalidSecurity",
        "InvalidURI",
        "KeyTooLongError",
        "KMS.AccessDeniedException",
        "KMS.DisabledException",
        "KMS.NotFoundException",
        "MethodNotAllowed",
        "NoSuchKey",
        "NotImplemented",
        "NotSignedUp",
        "PermanentRedirect",
        "RequestBodyTooLarge",
        "UserProjectAccountProblem",
        "XAmzContentSHA256Mismatch",
    }
)
"""Codes of refusals for good that S3, Azure or Google's store, or a server like them, gives and no proxy does; in
docs/stores.md. A refusal with one of them was given by the store, before it wrote anything."""
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


def needs_settling(error: StoreError) -> bool:
    """Is an object missing by an answer without any code, so that a listing must settle whether it is? Of a HEAD there
    is no code to be had, and whatever stands between may answer 404."""
    return isinstance(error, ObjectNotFoundError) and error.code == ""


def error_of_code(code: str, status: int, said: str, op: str, name: str) -> StoreError:
    """The store error for an answer; its ``code`` is the answer's if it is one of :data:`OWN_CODES`.

    One that :func:`needs_settling` is for the caller to settle.

    Args:
        code: the cloud's word; empty where the answer has none.
        status: of HTTP; 0 where there is none, as for one key of a bulk delete.
        said: the server's message.
        op: get, list, put, create or delete.
        name: bucket and key, for the message.
    """
    error = _error_of_code(code, status, said, op, name)
    error.code = code if code in OWN_CODES or code in _MISSING_CODES else ""
    return error


def _error_of_code(code: str, status: int, said: str, op: str, name: str) -> StoreError:
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
    is_missing = code in _MISSING_CODES and status in (404, 0)
    if op in ("get", "delete") and (is_missing or (status == 404 and not code)):
        return ObjectNotFoundError(message)
    if op == "put" and code in _SPOILED_UPLOAD_CODES:
        return error_without_answer(message, op)
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
