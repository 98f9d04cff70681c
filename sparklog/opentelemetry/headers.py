"""A trace's context in the headers of records, in whichever format the process is set up for: W3C's ``traceparent``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from opentelemetry import propagate, trace
from opentelemetry.context import Context

from sparklog.model import ConsumerRecord

__all__ = ["links_to", "sent_context", "with_context"]

_MOST_LINKS = 128
"""An SDK keeps as many of a span by default."""

Headers = Sequence[tuple[str, bytes | None]]


def with_context(headers: Headers | None, context: Context) -> list[tuple[str, bytes | None]]:
    """The headers with a context in place of the one that they may have."""
    carrier: dict[str, str] = {}
    propagate.inject(carrier, context)
    kept = [header for header in headers or () if header[0] not in carrier]
    return [*kept, *((name, value.encode()) for name, value in carrier.items())]


def sent_context(headers: Headers | None) -> Context | None:
    """The context that headers carry; None without one."""
    if not headers:
        return None
    fields = propagate.get_global_textmap().fields
    carrier = {name: value.decode("utf-8", "replace") for name, value in headers if name in fields and value}
    if not carrier:
        return None
    context = propagate.extract(carrier, Context())
    return context if trace.get_current_span(context).get_span_context().is_valid else None


def links_to(records: Iterable[ConsumerRecord]) -> list[trace.Link]:
    """Links to what sent the records: to each span once, 128 at most."""
    fields = propagate.get_global_textmap().fields
    found: dict[tuple[tuple[str, bytes | None], ...], trace.Link] = {}
    for record in records:
        carried = tuple(header for header in record.headers if header[0] in fields)
        if not carried or carried in found:
            continue
        context = sent_context(carried)
        if context is not None:
            found[carried] = trace.Link(trace.get_current_span(context).get_span_context())
            if len(found) == _MOST_LINKS:
                break
    return [*found.values()]
