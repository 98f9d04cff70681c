"""Times and dates in ISO 8601: what is one, what isn't, and that every reader agrees."""

from __future__ import annotations

import datetime as dt
import json
import random
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from sparklog.iso_times import parse_date, parse_time
from sparklog.log.data.segments import format_timestamp, parse_timestamp
from sparklog.processing.values import decoder_of
from sparklog.schemas import decode, value_schema
from tests.depth import by_depth

NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
ZONED = {  # a time, and the microseconds that it is after noon
    "2024-05-01T12:00:00Z": 0,
    "2024-05-01T12:00:00.000Z": 0,
    "2024-05-01T12:00:00.5Z": 500_000,
    "2024-05-01T12:00:00.1234Z": 123_400,
    "2024-05-01T12:00:00.1234567Z": 123_456,
    "2024-05-01T12:00:00.123456789Z": 123_456,
    "2024-05-01T12:00:00.999999999999Z": 999_999,
    "2024-05-01T14:00:00.5+02:00": 500_000,
    "2024-05-01T14:00:00+0200": 0,
    "2024-05-01T14:00:00+02": 0,
    "2024-05-01T14:00:00+02:00:00": 0,
    "2024-05-01T12:53:28+00:53:28": 0,
    "2024-05-01T06:30:00-0530": 0,
    "2024-05-01T12:00:00-00:00": 0,
    "2024-05-01T12:00Z": 0,
    "2024-05-01T12Z": 0,
    "2024-05-01T1200Z": 0,
    "2024-05-01 12:00:00Z": 0,
    "2024-05-01t12:00:00z": 0,
    "2024-05-01T12:00:00,5Z": 500_000,
    "20240501T120000Z": 0,
    "20240501T120000.25+0000": 250_000,
    "2024-W18-3T12:00:00Z": 0,
    "2024W183T12Z": 0,
}
NAIVE = ["2024-05-01T12:00:00", "2024-05-01", "2024-05-01 12:00", "20240501"]
NO_TIMES = [
    "",
    "noon",
    "2024-05-01T",
    "2024-05-01T24:00:00Z",  # newer interpreters take it for the next day
    "2024-05-01T12:00:60Z",
    "2024-05-01T12:60:00Z",
    "2024-02-30T12:00:00Z",
    "2024-13-01T12:00:00Z",
    "0000-01-01T00:00:00Z",
    "2024-05-01T12:00:00.Z",
    "2024-05-01T12:00.5Z",  # half a minute, which is read as half a second elsewhere
    "2024-05-01T12:00:00+05:60",
    "2024-05-01T12:00:00+24:00",
    "2024-05-01T12:00:00+5",
    "2024-05-01T12:00:00 +00:00",
    "2024-05-01T12:0000Z",
    "2024-05-01_12:00:00Z",
    " 2024-05-01T12:00:00Z",
    "2024-05-01T12:00:00Z\n",
    "2024-05-01T12:00:00Z[UTC]",
    "2024-121T12:00:00Z",
    "2024-W54-1T12:00:00Z",
    "+2024-05-01T12:00:00Z",
    "\u0662\u0660\u0662\u0664-05-01T12:00:00Z",  # digits, of another script
    "1714564800000",
]
SCHEMA = value_schema(pa.schema([("at", pa.timestamp("us", "UTC")), ("day", pa.date32())]))


@dataclass
class Event:
    at: dt.datetime


def stored(texts: list[str], name: str = "at") -> list[Any]:
    column, errors = decode("json", SCHEMA, pa.array([json.dumps({name: text}).encode() for text in texts]))
    return ["refused" if at in errors else row[name] for at, row in enumerate(column.to_pylist())]


def decoded_event(data: bytes) -> Event:
    decode = decoder_of(Event)
    assert decode is not None
    event = decode(data)
    assert isinstance(event, Event)
    return event


@pytest.mark.parametrize(("text", "after"), ZONED.items())
def test_a_time_is_the_same_in_typed_topics_workers_and_statistics(text, after):
    time = NOON + dt.timedelta(microseconds=after)
    assert parse_time(text) == time
    assert stored([text]) == [time]
    assert stored(["2024-05-01T12:00:00Z"] * 300 + [text]) == [NOON] * 300 + [time]
    assert decoded_event(json.dumps({"at": text}).encode()).at == time
    assert parse_timestamp(text) == int(time.timestamp() * 1000)


@pytest.mark.parametrize("text", NAIVE)
def test_a_time_without_a_zone_has_none(text):
    assert parse_time(text).tzinfo is None
    assert stored([text]) == ["refused"]
    assert decoded_event(json.dumps({"at": text}).encode()).at == parse_time(text)
    assert parse_timestamp(text) == int(parse_time(text).replace(tzinfo=dt.UTC).timestamp() * 1000)


@pytest.mark.parametrize("text", NO_TIMES)
def test_what_is_no_time_is_none_for_all(text):
    with pytest.raises(ValueError, match=r"expected a time|must be|out of range|Invalid week|between"):
        parse_time(text)
    assert stored([text]) == ["refused"]
    assert stored(["2024-05-01T12:00:00Z"] * 300 + [text])[-1] == "refused"
    with pytest.raises(ValueError, match=r"."):
        decoded_event(json.dumps({"at": text}).encode())
    if text == text.strip():
        with pytest.raises(ValueError, match=r"."):
            parse_timestamp(text)


def test_dates_are_read_as_those_of_times():
    for text in ("2024-05-01", "20240501", "2024-W18-3", "2024W183"):
        assert parse_date(text) == dt.date(2024, 5, 1)
        assert stored([text], "day") == [dt.date(2024, 5, 1)]
    for text in ("2024-05-01T12:00:00Z", "2024-02-30", "2024-5-1", ""):
        assert stored([text], "day") == ["refused"]


def test_what_arrow_reads_is_read_alone_as_well():
    """Many values are read by Arrow, one by :func:`parse_time`."""
    draw = random.Random(7)
    dates = ["2024-02-29", "2023-02-29", "9999-12-31", "0001-01-01", "0000-01-01", "2024-13-01", "20240501"]
    times = ["", "12", "12:30", "1230", "12:30:59", "123059", "24:00:00", "23:59:60"]
    for _ in range(by_depth(gate=2_000, nightly=50_000)):
        text = (
            draw.choice(dates)
            + draw.choice("T t")
            + draw.choice(times)
            + draw.choice(["", "", ".5", ".123456", ".1234567", ".", ",5"])
            + draw.choice(["", "Z", "z", "+01:00", "-0130", "+01", "+24:00", "+05:60", "+01:00:30"])
        )
        if draw.random() < 0.1:
            at = draw.randrange(len(text))
            text = text[:at] + draw.choice("0123456789:TZ+-. ") + text[at + 1 :]
        try:
            read = pa.array([text]).cast(pa.timestamp("us", "UTC"))[0].as_py()
        except (pa.ArrowException, OverflowError, ValueError):
            continue
        assert parse_time(text) == read, text


def test_statistics_of_ours_are_read_back():
    for time_ms in (0, -1, 1, 1_714_564_800_123, -62_135_596_800_000, 253_402_300_799_999):
        assert parse_timestamp(format_timestamp(time_ms)) == time_ms
