"""DescribeUserScramCredentials: the users of the file, which the wire doesn't change."""

from __future__ import annotations

from collections import Counter
from typing import Any

from sparklog.errors import InvalidConfigurationError
from sparklog.gateway.backend import Backend, Request
from sparklog.gateway.error_codes import ErrorCode
from sparklog.gateway.users import User

__all__ = ["describe_user_scram_credentials"]

_MECHANISMS = {"SHA-256": 1, "SHA-512": 2}
"""Source: Kafka ``ScramMechanism``."""

_Answer = dict[str, Any]


async def describe_user_scram_credentials(backend: Backend, request: Request) -> _Answer:
    """The mechanisms of users, and how often each hashes; no key.

    Source of the errors: Kafka ``ScramImage.describe``."""
    try:
        users = {} if backend.users is None else await backend.run(backend.users.all)
    except (InvalidConfigurationError, OSError) as error:
        return {"error_code": ErrorCode.UNKNOWN_SERVER_ERROR, "error_message": str(error), "results": []}
    asked = [one["name"] for one in request.body["users"] or ()]
    times = Counter(asked)
    return {"error_message": None, "results": [_result(name, users.get(name), times[name]) for name in times or users]}


def _result(name: str, user: User | None, times: int) -> _Answer:
    if times > 1:
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        code = ErrorCode.DUPLICATE_RESOURCE
    elif user is None:
        message = f"Attempt to describe a user credential that does not exist: {name}"
        code = ErrorCode.RESOURCE_NOT_FOUND
    else:
        infos = [{"mechanism": _MECHANISMS[one], "iterations": keys.iterations} for one, keys in user.keys.items()]
        return {"user": name, "error_message": None, "credential_infos": infos}
    return {"user": name, "error_code": code, "error_message": message, "credential_infos": []}
