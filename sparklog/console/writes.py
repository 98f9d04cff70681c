"""Changes of settings, records, groups and transactions. Each is a form with a token, and is logged with who did it and
never with what a record holds."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from sparklog.admin import OffsetReset, ResetTo
from sparklog.console.backend import Backend
from sparklog.console.jobs import in_one_line
from sparklog.console.pages import Pages, find_record
from sparklog.console.security import csrf_token, user_of
from sparklog.console.statements import parse_time_ms
from sparklog.errors import InvalidArgumentError, KafkaTimeoutError, StoreOutcomeUnknownError
from sparklog.logs import about
from sparklog.model import Headers, RecordMetadata
from sparklog.producer import Producer

__all__ = ["Writes"]

_LOGGER = logging.getLogger("sparklog.console")
_MOST_FORM_BYTES = 4 * 2**20
_SEND_S = 40.0
"""Longer than a producer tries."""
_WHOLE_RECORD = 2**31

Form = Mapping[str, str]


class Writes:
    """Carries out the forms of a console. For several threads."""

    def __init__(self, backend: Backend, pages: Pages) -> None:
        self._backend = backend
        self._pages = pages

    async def settings(self, request: Request) -> Response:
        """Set a setting of a topic, or take it back to its default."""
        return await self._done(request, self._set)

    async def produce(self, request: Request) -> Response:
        """Produce a record: the one that the form has, or the copy of another one."""
        return await self._done(request, self._produce)

    async def reset(self, request: Request) -> Response:
        """Reset the offsets of a group. A rehearsal only reads, and may be asked for by everybody."""
        form = await _form(request)
        if isinstance(form, Response):
            return form
        is_rehearsal = form.get("execute") != "yes"
        refusal = None if is_rehearsal else self._refusal(request, form)
        if refusal is not None:
            return refusal

        def reset() -> Response:
            group = form.get("group", "")
            plan = self._reset(form, dry_run=is_rehearsal)
            if not is_rehearsal:
                user = user_of(request)
                extra = about(user=user, group=group)
                _LOGGER.info("%r reset group %r to %s", user, group, form.get("to"), extra=extra)
            return self._pages.render(request, "reset.html", group=group, plan=plan, form=form, done=not is_rehearsal)

        return await self._backend.carry_out(reset)

    async def abort(self, request: Request) -> Response:
        """Abort the transaction of a transactional id."""
        return await self._done(request, self._abort)

    async def recover(self, request: Request) -> Response:
        """Finish what is decided, and abort what is past its time."""
        return await self._done(request, self._recover)

    async def _done(self, request: Request, act: Callable[[Request, Form], tuple[str, str, str]]) -> Response:
        """The page that reports an action and links back; the action returns a title, a text and a path."""
        form = await _form(request)
        if isinstance(form, Response):
            return form
        refusal = self._refusal(request, form)
        if refusal is not None:
            return refusal

        def run() -> Response:
            title, text, back = act(request, form)
            return self._pages.render(request, "done.html", title=title, text=text, back=back)

        return await self._backend.carry_out(run)

    def _refusal(self, request: Request, form: Form) -> Response | None:
        if not self._backend.settings.allow_writes:
            return PlainTextResponse("this console only reads: start it with --allow-writes\n", 403)
        expected = csrf_token(self._backend.secret, user_of(request))
        if not hmac.compare_digest(expected.encode(), form.get("csrf", "").encode()):
            return PlainTextResponse("the form is not of this console, or older than it: load the page again\n", 403)
        return None

    def _set(self, request: Request, form: Form) -> tuple[str, str, str]:
        topic, name = request.path_params["topic"], form.get("name", "")
        value = None if form.get("default") else form.get("value", "")
        self._backend.admin().alter_configs({topic: {name: value}})
        user = user_of(request)
        _LOGGER.info("%r set %s of topic %r", user, name, topic, extra=about(user=user, topic=topic))
        said = f"{name} is back at its default" if value is None else f"{name} is {value}"
        return "Setting changed", f"{said}, in the next version of the topic's log.", f"/topics/{topic}"

    def _produce(self, request: Request, form: Form) -> tuple[str, str, str]:
        source = request.path_params["topic"]
        target = form.get("target") or source
        arguments = self._copied(source, form) if form.get("offset") else _record_of_form(form)
        sent = _sent(self._backend, target, arguments)
        _LOGGER.info(
            "%r produced a record to topic %r, partition %d, offset %d",
            user_of(request),
            target,
            sent.partition,
            sent.offset,
            extra=about(user=user_of(request), topic=target, partition=sent.partition),
        )
        back = f"/topics/{target}/records/{sent.partition}/{sent.offset}"
        return "Record stored", f"Topic {target}, partition {sent.partition}, offset {sent.offset}.", back

    def _copied(self, topic: str, form: Form) -> dict[str, Any]:
        """The arguments that send what another record has, byte by byte."""
        if self._backend.settings.masks:
            raise InvalidArgumentError("records aren't copied while fields are masked: another topic may show them")
        partition, offset = _whole(form, "partition"), _whole(form, "offset")
        record = find_record(self._backend, topic, partition, offset, most_bytes=_WHOLE_RECORD)
        return {"key": record.key, "value": record.value, "headers": record.headers}

    def _reset(self, form: Form, *, dry_run: bool) -> list[OffsetReset]:
        kind, number = form.get("to", ""), form.get("number", "").strip()
        count = 0
        if kind == "time":
            found = parse_time_ms(number, "number")
            if found is None:
                raise InvalidArgumentError("number: expected a time, such as 2026-01-31T12:00Z")
            count = found
        elif kind in ("offset", "shift"):
            count = _signed(number)
        admin = self._backend.admin()
        return admin.reset_group_offsets(form.get("group", ""), ResetTo(kind, count), dry_run=dry_run)  # type: ignore[arg-type]

    def _abort(self, request: Request, form: Form) -> tuple[str, str, str]:
        name = form.get("id", "")
        self._backend.admin().abort_transaction(name)
        user = user_of(request)
        extra = about(user=user, transactional_id=name)
        _LOGGER.info("%r aborted the transaction of %r", user, name, extra=extra)
        return "Transaction aborted", f"None that {name} had open can be committed any more.", "/"

    def _recover(self, request: Request, form: Form) -> tuple[str, str, str]:
        found = self._backend.admin().recover_transactions()
        user = user_of(request)
        _LOGGER.info("%r recovered transactions: %d were checked", user, len(found), extra=about(user=user))
        failed = [one for one in found if one.error is not None]
        reasons = "; ".join(f"{one.transactional_id}: {in_one_line(one.error)}" for one in failed if one.error)
        return "Transactions recovered", f"{len(found)} looked at, {len(failed)} failed. {reasons}", "/"


async def _form(request: Request) -> dict[str, str] | Response:
    """The fields of a form that was sent."""
    if request.headers.get("content-type", "").partition(";")[0] != "application/x-www-form-urlencoded":
        return PlainTextResponse("expected a form, application/x-www-form-urlencoded\n", 415)
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > _MOST_FORM_BYTES:
            return PlainTextResponse(f"the form has more than {_MOST_FORM_BYTES} bytes\n", 413)
    return dict(parse_qsl(body.decode(errors="replace"), keep_blank_values=True, errors="replace"))


def _record_of_form(form: Form) -> dict[str, Any]:
    """The arguments that send what a form has."""
    headers: Headers = []
    for line in form.get("headers", "").splitlines():
        name, equals, value = line.partition("=")
        if line.strip() and not equals:
            raise InvalidArgumentError(f"headers: got {line!r}, expected NAME=VALUE in each line")
        if line.strip():
            headers.append((name, value.encode()))
    key, value = form.get("key", ""), form.get("value", "")
    return {
        "key": None if form.get("no_key") else key.encode(),
        "value": None if form.get("tombstone") else value.replace("\r\n", "\n").encode(),
        "headers": headers,
        "partition": _whole(form, "partition") if form.get("partition", "").strip() else None,
    }


def _sent(backend: Backend, topic: str, arguments: dict[str, Any]) -> RecordMetadata:
    """Send one record, and wait until it is stored.

    Raises what sending raises; the message says if the outcome is unknown.
    """
    with Producer(cluster=backend.cluster(), delivery_timeout_ms=30_000, request_timeout_ms=15_000) as producer:
        future = producer.send(topic, **arguments)
        try:
            return future.get(_SEND_S)
        except (KafkaTimeoutError, StoreOutcomeUnknownError) as error:
            raise KafkaTimeoutError(
                f"topic {topic!r}: whether the record was stored isn't known, look before you send it again: {error}"
            ) from error


def _whole(form: Form, name: str) -> int:
    text = form.get(name, "").strip()
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise InvalidArgumentError(f"{name}: got {text!r}, expected a whole number")
    return int(text)


def _signed(text: str) -> int:
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not (digits.isascii() and digits.isdecimal() and len(digits) < 19):
        raise InvalidArgumentError(f"number: got {text!r}, expected a whole number")
    return int(text)
