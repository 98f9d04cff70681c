"""Dates and times in ISO 8601, read in one way on every version of Python: in values, in workers and in statistics."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone

__all__ = ["parse_date", "parse_time"]

_DATE = r"(?:([0-9]{4})-([0-9]{2})-([0-9]{2})|([0-9]{4})([0-9]{2})([0-9]{2})|([0-9]{4})-?W([0-9]{2})(?:-?([1-7]))?)"
_CLOCK = r"([0-9]{2})(?::([0-9]{2})(?::([0-9]{2})(?:[.,]([0-9]+))?)?|([0-9]{2})(?:([0-9]{2})(?:[.,]([0-9]+))?)?)?"
_ZONE = r"([Zz]|[+-][0-9]{2}(?::?[0-5][0-9](?::?[0-5][0-9])?)?)"
_TIME = re.compile(rf"{_DATE}(?:[Tt ]{_CLOCK}{_ZONE}?)?")
_ONLY_DATE = re.compile(_DATE)
_COMMON = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}[T ](?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}(?:\.(?:[0-9]{3}|[0-9]{6}))?)Z"
)
"""The form that nearly all writers use: before its ``Z`` every Python reads it alike."""
_MOST_SHOWN = 60


def parse_time(text: str) -> datetime:
    """A date, or a date and a time, in ISO 8601: with a zone where the text has one.

    The date is ``2026-01-31``, ``20260131`` or ``2026-W05-6``; a ``T`` or a space is before the time, which is
    ``12:30:59``, ``123059``, or without seconds or minutes; seconds may have a fraction behind a point or a comma, cut
    to microseconds; the zone is ``Z``, ``+01:00``, ``+0100`` or ``+01``. Neither 24:00 nor a second 60 is a time.

    Raises ``ValueError``: it is none.
    """
    common = _COMMON.fullmatch(text)
    try:
        return _moment(text) if common is None else datetime.fromisoformat(common[1]).replace(tzinfo=UTC)
    except ValueError as error:
        raise ValueError(f"{text[:_MOST_SHOWN]!r}: {error}") from None


def parse_date(text: str) -> date:
    """A date in ISO 8601, as :func:`parse_time` has it. Raises ``ValueError``: it is none."""
    found = _ONLY_DATE.fullmatch(text)
    try:
        if found is None:
            raise ValueError("expected a date, such as 2026-01-31")
        return _day(found.groups())
    except ValueError as error:
        raise ValueError(f"{text[:_MOST_SHOWN]!r}: {error}") from None


def _moment(text: str) -> datetime:
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError("expected a time, such as 2026-01-31T12:00:00Z")
    groups = found.groups()
    hour, minute, second, fraction, short_minute, short_second, short_fraction, zone = groups[9:]
    digits = (fraction or short_fraction or "")[:6]
    day = _day(groups[:9])
    return datetime(
        day.year,
        day.month,
        day.day,
        int(hour or 0),
        int(minute or short_minute or 0),
        int(second or short_second or 0),
        int(digits.ljust(6, "0")),
        None if zone is None else _zone(zone),
    )


def _day(groups: tuple[str | None, ...]) -> date:
    year, month, day, short_year, short_month, short_day, week_year, week, weekday = groups
    if week_year is not None:
        return date.fromisocalendar(int(week_year), int(week or 0), int(weekday or 1))
    return date(int(year or short_year or 0), int(month or short_month or 0), int(day or short_day or 0))


def _zone(text: str) -> timezone:
    if text in "Zz":
        return UTC
    digits = text[1:].replace(":", "")
    hours, minutes, seconds = (int(digits[at : at + 2] or 0) for at in (0, 2, 4))
    offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
    return timezone(-offset if text[0] == "-" else offset) if offset else UTC
