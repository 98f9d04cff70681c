"""The store error that an exception of obstore means.

obstore's classes say too little: a 409 and a 412 are both ``AlreadyExistsError``, a 503 and a broken connection both
``GenericError``. The status, and the cloud's code and message, stand in the text, which object_store 0.14 writes in
``client/retry.rs``. What is written otherwise one day counts as a lost answer, which is safe.

hyper, which sends the requests, sends one a second time only if the kept connection that it was handed to was closed
before any byte was written; object_store's own retries are off. So an answer is the answer to the only request.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from urllib.parse import unquote

from sparklog.errors import InvalidArgumentError, StoreError, StorePermissionError, StoreUnavailableError
from sparklog.storage import _answers
from sparklog.storage._answers import error_of_code, error_without_answer, is_taken_answer

__all__ = ["Answer", "answer_of", "is_of_expired_credentials", "is_taken", "is_unsatisfiable_range", "translate"]

_DEBUG = "\n\nDebug source:"
_REQUEST = re.compile(r"Error performing (?P<method>[A-Z]+) (?P<url>\S+) in ")
_STATUS = re.compile(
    r"Error performing [A-Z]+ \S+ in \S+ - Server returned non-2xx status code: (?P<status>\d{3})[^:]*:? ?(?P<body>.*)",
    re.DOTALL,
)
"""With the request before it: a key, which may stand before that, could have the rest of these words."""
_ERROR_BODY = re.compile(
    r"Error performing [A-Z]+ \S+ in \S+ - Server returned error response: (?P<body>.*)", re.DOTALL
)
_REFUSED_KEY = re.compile(
    r"(?:DeleteObjects|Bulk delete) request failed for key (?P<key>.*): (?P<said>.*) \(code: (?P<code>\w+)\)", re.DOTALL
)
_CODE = re.compile(r"<Code>(.*?)</Code>", re.DOTALL)
_MESSAGE = re.compile(r"<Message>(.*?)</Message>", re.DOTALL)
_BAD_KEY = re.compile(r"Error parsing Path|contained empty path segment|Could not parse path")
_QUOTED_KEY = re.compile(r"(?:Path|path) \"(?P<key>.*?)\"", re.DOTALL)
_BEHIND_THE_END = re.compile(r"Wanted range starting at \d+|CONTENT_RANGE header: \"bytes 0--1/0\"")
"""Azure, and its emulator of an empty blob, answer with a success."""
_BAD_CERTIFICATE = re.compile(r"InvalidCertificate\(\s*(\w+)")
_TRANSPORT = re.compile(r"HttpError \{\s*kind: (\w+)")
_SYSTEM_ERROR = re.compile(r"message: \"([^\"]+)\"")
_URL_USER = re.compile(r"//[^/@\s]*@")  # an endpoint's user and password
_REDACTED = "REDACTED"
"""In place of a URL that holds a signature or a token."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a server."""

    status: int
    """HTTP's status; 0 for one key of a bulk delete."""
    code: str
    """The cloud's word for it; empty where the answer has none."""
    said: str


def answer_of(error: BaseException) -> Answer | None:
    """The server's answer; None where there was none, or none that is understood."""
    text = _text(error)
    match = _STATUS.search(text)
    if match:
        body = match["body"]
        return Answer(int(match["status"]), _first(_CODE, body), _first(_MESSAGE, body))
    match = _ERROR_BODY.search(text)
    if match:  # a success by its status
        return Answer(500, _first(_CODE, match["body"]), _first(_MESSAGE, match["body"]))
    match = _REFUSED_KEY.search(text)
    if match is None:
        return None
    code, said = match["code"], f"{match['said']} ({match['key']})"
    return Answer(int(code), "", said) if code.isdigit() else Answer(0, code, said)


def is_taken(error: Exception, *, bucket: str) -> bool:
    """Did the bucket say that a create-only put found its name taken? Not whoever was asked for credentials."""
    answer = answer_of(error)
    if answer is None or _is_of_credentials(error, _text(error), bucket):
        return False
    return is_taken_answer(answer.code, answer.status)


def is_of_expired_credentials(error: Exception, *, bucket: str) -> bool:
    """Did the bucket refuse the credentials as such, so that newer ones may be accepted?"""
    answer = answer_of(error)
    if answer is None or _is_of_credentials(error, _text(error), bucket):
        return False
    return _answers.is_of_expired_credentials(answer.code, answer.status)


def is_unsatisfiable_range(error: BaseException) -> bool:
    """Did the server say that the range begins at or after the object's end (416)?"""
    answer = answer_of(error)
    if answer is None:
        return _BEHIND_THE_END.search(_text(error)) is not None
    return answer.status == 416 or answer.code == "InvalidRange"


def translate(error: Exception, op: str, name: str, *, bucket: str) -> StoreError | None:
    """The store error for what obstore raised; None for what isn't the store's doing and should be seen as it is.

    Args:
        op: get, list, put, create or delete; a lost answer matters for the last three.
        name: bucket and key, for the message.
        bucket: its name, as it stands in the URLs of requests to it.
    """
    text = _text(error)
    if _REQUEST.search(text) is None and _BAD_KEY.search(text):  # in an answer, the words are the server's
        if op == "list" and not _is_of_prefix(text, name):
            return StoreError(
                f"list {name}: {text.partition(': ')[2] or text}; obstore lists nothing where an object has such a "
                "name, which sparklog writes none of: delete it, with another tool"
            )
        message = f"{op} {name}: a key that object stores can't have: {text.partition(': ')[2] or text}"
        raise InvalidArgumentError(message) from error
    if not isinstance(error, OSError) and "BaseError" not in {cls.__name__ for cls in type(error).__mro__}:
        return None
    _hide_user(error)
    answer = answer_of(error)
    if op == "put" and _is_of_cleanup(text):
        message = f"{op} {name}: an upload in parts failed, and so did its clean-up, of which alone there is an error"
        return error_without_answer(f"{message}: {_reason(error, text)}", op)
    if _is_of_credentials(error, text, bucket):
        message = f"{op} {name}: no credentials: {_reason(error, text)}"
        is_for_now = answer is not None and (answer.status >= 500 or answer.status == 429)
        return StoreUnavailableError(message) if is_for_now else StorePermissionError(message)
    if answer is not None:
        return error_of_code(answer.code, answer.status, answer.said, op, name)
    message = f"{op} {name}: {_reason(error, text)}"
    if is_unsatisfiable_range(error):
        return StoreError(message)
    if "redirect without LOCATION" in text:
        return StoreError(f"{message}; is it in another region?")
    if _BAD_CERTIFICATE.search(str(error)):  # the handshake failed: nothing was sent
        return StoreError(message)
    return error_without_answer(message, op)


def _is_of_cleanup(text: str) -> bool:
    """Is it the request that removes the parts of an upload which failed? Its error takes the place of the failure, and
    the upload may have been completed."""
    match = _REQUEST.search(text)
    return match is not None and match["method"] == "DELETE"


def _is_of_prefix(text: str, name: str) -> bool:
    """Is a key that obstore refuses the prefix itself, and not one that it was listing?"""
    match = _QUOTED_KEY.search(text)
    return match is not None and name.rstrip("/").endswith(match["key"].removesuffix("/"))


def _text(error: BaseException) -> str:
    """The message without the sources in Rust's notation."""
    return _URL_USER.sub("//", str(error).partition(_DEBUG)[0])


def _hide_user(error: Exception) -> None:
    """Take an endpoint's user and password out of the exception itself, which stays the cause of the store's error."""
    error.args = tuple(_URL_USER.sub("//", said) if isinstance(said, str) else said for said in error.args)


def _first(pattern: re.Pattern[str], text: str) -> str:
    """The first line of what a pattern's group matches: Azure adds the request's number and time below."""
    match = pattern.search(text)
    return html.unescape(match[1]).strip().partition("\n")[0] if match else ""


def _is_of_credentials(error: Exception, text: str, bucket: str) -> bool:
    """Did not the bucket refuse, but whoever was asked for credentials before anything was sent to the bucket?"""
    match = _REQUEST.search(text)
    if match is None:
        return "credential provider" in text or type(error).__name__ == "UnauthenticatedError"
    if match["url"] == _REDACTED:
        return False
    url, name = unquote(match["url"]).lower(), bucket.lower()  # the name of a host is in lower case
    return f"/{name}" not in url


def _reason(error: Exception, text: str) -> str:
    """The message, with what the sources add: kind of a transport error, the system's error."""
    debug = str(error).partition(_DEBUG)[2]
    more = [match[1] for pattern in (_TRANSPORT, _BAD_CERTIFICATE, _SYSTEM_ERROR) if (match := pattern.search(debug))]
    return f"{text} ({', '.join(more)})" if more else text
