"""DescribeUserScramCredentials, and AlterUserScramCredentials of users in the store: those of a file the wire doesn't
change."""

from __future__ import annotations

from collections import Counter
from typing import Any

from sparklog.errors import SparklogError
from sparklog.gateway.backend import Backend, Request
from sparklog.gateway.error_codes import ErrorCode, code_of
from sparklog.gateway.scram_changes import MECHANISMS, Alteration
from sparklog.gateway.stored_users import StoredUsers
from sparklog.gateway.users import User

__all__ = ["alter_user_scram_credentials", "describe_user_scram_credentials"]

_Answer = dict[str, Any]


async def describe_user_scram_credentials(backend: Backend, request: Request) -> _Answer:
    """The mechanisms of users, and how often each hashes; no key.

    Source of the errors: Kafka ``ScramImage.describe``."""
    try:
        users = {} if backend.users is None else await backend.run(backend.users.all)
    except (SparklogError, OSError) as error:
        return {"error_code": ErrorCode.UNKNOWN_SERVER_ERROR, "error_message": str(error), "results": []}
    known = {name: user for name, user in users.items() if user.keys}
    asked = [asked_user["name"] for asked_user in request.body["users"] or ()]
    times = Counter(asked)
    return {"error_message": None, "results": [_result(name, known.get(name), times[name]) for name in times or known]}


def _result(name: str, user: User | None, times: int) -> _Answer:
    if times > 1:
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        code = ErrorCode.DUPLICATE_RESOURCE
    elif user is None:
        message = f"Attempt to describe a user credential that does not exist: {name}"
        code = ErrorCode.RESOURCE_NOT_FOUND
    else:
        infos = [
            {"mechanism": MECHANISMS[hash_name], "iterations": keys.iterations} for hash_name, keys in user.keys.items()
        ]
        return {"user": name, "error_message": None, "credential_infos": infos}
    return {"user": name, "error_code": code, "error_message": message, "credential_infos": []}


async def alter_user_scram_credentials(backend: Backend, request: Request) -> _Answer:
    """Give users keys, and take keys away. A user that is new has no rights: an administrator gives it some."""
    users, alteration = backend.users, Alteration(request.body, request.rules)
    names = alteration.names()
    if not isinstance(users, StoredUsers):
        message = "users are changed here only where they are in the store: `sparklog gateway --users store`"
        return {"results": [_altered(name, (ErrorCode.INVALID_REQUEST, message)) for name in names]}
    try:
        await backend.run(lambda: users.change(alteration.apply))
    except SparklogError as error:
        code, message = code_of(error), str(error)
        return {"results": [_altered(name, (code, message)) for name in names]}
    return {"results": [_altered(name, alteration.refusals.get(name)) for name in names]}


def _altered(name: str, refusal: tuple[ErrorCode, str] | None) -> _Answer:
    code, message = refusal or (ErrorCode.NONE, None)
    return {"user": name, "error_code": code, "error_message": message}
