"""A guard around the whole application: who is there, and what a browser may be made to do."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from urllib.parse import urlsplit

from anyio import to_thread
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sparklog.clock import SystemClock
from sparklog.console.failed_logins import FailedLogins
from sparklog.console.passwords import Passwords
from sparklog.console.settings import ConsoleSettings

__all__ = ["HEADERS", "Guard", "csrf_token", "user_of"]

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Headers of every answer: no script but the console's own files runs, whatever a record holds."""

_OPEN_PATHS = frozenset({"/healthz", "/readyz"})
"""Probes carry no password; their answers are described in :class:`~sparklog.exporter.ExporterApp`."""
_READING = frozenset({"GET", "HEAD"})


def user_of(request: Request) -> str:
    """The user's name; empty without a login."""
    return str(request.scope.get("sparklog.user", ""))


def csrf_token(secret: bytes, user: str) -> str:
    """The token that a form of this console carries, and another site's can't."""
    return hmac.new(secret, f"form of {user}".encode(), hashlib.sha256).hexdigest()


class Guard:
    """Lets through the requests that may be answered."""

    def __init__(self, app: ASGIApp, *, settings: ConsoleSettings) -> None:
        self._app = app
        self._settings = settings
        self._passwords = Passwords(settings.users)
        self._failed = FailedLogins(SystemClock())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        headers = Headers(scope=scope)
        refusal = self._refusal(scope, headers)
        if refusal is None and scope["path"] not in _OPEN_PATHS:
            user = await self._user(scope, headers)
            if user is None:
                refusal = PlainTextResponse(
                    "Who is there?\n", 401, {"WWW-Authenticate": 'Basic realm="sparklog", charset="UTF-8"'}
                )
            scope["sparklog.user"] = user or ""
        await (refusal or self._app)(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        """Why a request isn't answered, from any user; None where it is."""
        host = headers.get("host", "")
        if self._settings.hosts is not None and _host_name(host) not in self._settings.hosts:
            return PlainTextResponse("this console doesn't answer to that name: see --host\n", 421)
        origin, site = headers.get("origin", ""), headers.get("sec-fetch-site", "")
        is_navigation = headers.get("sec-fetch-mode", "navigate") == "navigate"
        is_foreign = (origin not in ("", "null") and urlsplit(origin).netloc != host) or origin == "null"
        if scope["method"] not in _READING and (is_foreign or site in ("cross-site", "same-site")):
            return PlainTextResponse("forms of other sites aren't taken\n", 403)
        if site == "cross-site" and not is_navigation:
            return PlainTextResponse("other sites' pages aren't answered\n", 403)
        return None

    async def _user(self, scope: Scope, headers: Headers) -> str | None:
        """The user's name; empty without a login; None: no known user."""
        settings = self._settings
        if not settings.needs_login:
            return ""
        client = scope.get("client")
        if settings.trust_header and client is not None and client[0] in settings.trusted_proxies:
            named = headers.get(settings.trust_header, "")
            if named:
                return named
        given = _basic(headers.get("authorization", ""))
        if given is None or not settings.users:
            return None
        is_right = await to_thread.run_sync(self._passwords.check, *given)
        if is_right:
            return given[0]
        self._failed.note("an unknown address" if client is None else str(client[0]), given[0])
        return None


def _host_name(host: str) -> str:
    """The name in a Host header, without its port and brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def _basic(header: str) -> tuple[str, str] | None:
    """Name and password. Source: RFC 7617, section 2."""
    kind, _, encoded = header.partition(" ")
    if kind.lower() != "basic":
        return None
    try:
        name, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return (name, password) if colon else None
