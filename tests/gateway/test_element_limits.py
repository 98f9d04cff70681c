"""Every array of every request has a limit, which is asked before memory is taken; large messages aren't decoded or
encoded in the event loop; what is named twice is answered once."""

from __future__ import annotations

import asyncio
import re
import threading
import tracemalloc
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import sparklog.gateway
from sparklog import Admin, NewTopic
from sparklog.gateway.apis import APIS
from sparklog.gateway.backend import Request
from sparklog.gateway.coordination.consumer_protocol import MOST_TOPICS, named_topics
from sparklog.gateway.element_limits import DEFAULT, IN_THE_LOOP, OTHERS, is_large, limits_of
from sparklog.gateway.group_offset_requests import offset_commit
from sparklog.gateway.large_messages import note_refused
from sparklog.gateway.produce import Answer, _answer
from sparklog.gateway.wire import ElementLimits, Message, TooManyElementsError, WireError, message
from sparklog.gateway.wire.fields import Field
from tests.gateway.test_server import Wire, batch, produce

FEW = ElementLimits(of_array=10, of_message=15)
DOCS = Path(__file__).parents[2] / "docs" / "gateway.md"


def arrays(fields: tuple[Field, ...], version: int, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The paths of all arrays of a struct."""
    found = []
    for field in fields:
        if version in field.versions:
            here = (*path, field.name)
            found += [here] * field.kind.startswith("[]") + arrays(field.fields, version, here)
    return found


def filled(fields: tuple[Field, ...], version: int, path: tuple[str, ...], count: int) -> dict[str, Any]:
    """A value that has ``count`` elements in the array at ``path``, and one in those that lead there."""
    value: dict[str, Any] = {}
    for field in fields:
        if version not in field.versions or field.name != path[0]:
            continue
        inner = filled(field.fields, version, path[1:], count) if path[1:] else None
        if field.kind.startswith("[]"):
            element = {} if field.fields else {"string": "", "uuid": uuid.UUID(int=0)}.get(field.kind[2:], 0)
            value[field.name] = [inner] if inner is not None else [element] * count
        else:
            value[field.name] = inner
    return value


CASES = [
    pytest.param(api.request, version, path, id=f"{api.name}-{version}-{'.'.join(path)}")
    for api in APIS.values()
    for version in sorted({api.first, api.last})
    for path in arrays(api.request.fields, version)
]


@pytest.mark.parametrize(("request_message", "version", "path"), CASES)
def test_each_array_has_a_limit(request_message: Message, version: int, path: tuple[str, ...]) -> None:
    many = request_message.encode(filled(request_message.fields, version, path, FEW.of_array + 1), version)
    with pytest.raises(TooManyElementsError, match=r"11 elements at byte .*: expected at most 10"):
        request_message.decode(many, version, limits=FEW)
    fitting = request_message.encode(filled(request_message.fields, version, path, FEW.of_array), version)
    assert request_message.decode(fitting, version, limits=FEW)


def test_elements_of_all_arrays_count_together() -> None:
    fetching = message("FetchRequest")
    topics = [{"topic": "t", "partitions": [{"partition": 0}] * 4}] * 3
    data = fetching.encode({"topics": topics}, 4)
    assert fetching.decode(data, 4, limits=FEW)["topics"]
    with pytest.raises(TooManyElementsError, match="expected at most 15 in a message"):
        fetching.decode(fetching.encode({"topics": topics * 2}, 4), 4, limits=FEW)


def test_tagged_fields_that_nobody_knows_count() -> None:
    api_versions = message("ApiVersionsRequest")
    known = bytes(api_versions.encode({}, 3))
    tags = b"".join(bytes([40 + number, 0]) for number in range(11))
    assert api_versions.decode(known[:-1] + b"\x0a" + tags[:20], 3, limits=FEW)
    with pytest.raises(TooManyElementsError, match="11 elements"):
        api_versions.decode(known[:-1] + b"\x0b" + tags, 3, limits=FEW)


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_a_request_of_8_mib_takes_no_memory_beside_its_own(api) -> None:
    """✗ Metadata 1 with 2.8 million names took 936 MB."""
    paths = arrays(api.request.fields, api.last)
    if not paths:
        return
    flexible = api.last in api.request.flexible
    head = api.request.encode(filled(api.request.fields, api.last, paths[0][:1], 0), api.last)
    api.request.decode(head, api.last)
    count = limits_of(api.name).of_array + 1
    body = api.request.encode(filled(api.request.fields, api.last, paths[0][:1], count), api.last)
    data = bytes(body) + bytes(1 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(TooManyElementsError):
            api.request.decode(data, api.last, is_exact=False, limits=limits_of(api.name))
        assert tracemalloc.get_traced_memory()[1] < 100_000, flexible
    finally:
        tracemalloc.stop()


def test_those_who_are_not_known_may_send_the_fewest() -> None:
    for api in ("ApiVersions", "SaslHandshake", "SaslAuthenticate"):
        assert limits_of(api).of_message == min(limits.of_message for limits in [DEFAULT, *OTHERS.values()])


def test_the_docs_have_the_limits() -> None:
    rows = re.findall(r"^\| ([A-Za-z, ]+) \| ([\d,]+) \| ([\d,]+) \|", DOCS.read_text(), re.MULTILINE)
    told = {
        name: ElementLimits(number(each), number(every)) for names, each, every in rows for name in names.split(", ")
    }
    assert told == {"all others": DEFAULT, **OTHERS}


def number(text: str) -> int:
    return int(text.replace(",", ""))


def test_a_message_is_large_by_all_its_elements() -> None:
    topics = [{"name": "t", "partitions": [*range(9)]}] * 100
    assert not is_large({"topics": topics})
    assert is_large({"topics": [*topics, {"name": "t", "partitions": [0]}]})
    assert not is_large({"topics": None, "records": [b"x" * 5_000], "text": "x" * 5_000})


@pytest.fixture
def wire():
    root = f"memory://element-limits-{uuid.uuid4().hex}"
    Admin(root).create_topics([NewTopic("jobs", 2)])
    with sparklog.gateway.serve(root, auto_create_topics=False) as servers:
        client = Wire(servers)
        yield client
        client.close()


@pytest.fixture
def decoders(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The messages that were decoded, with the threads that did it."""
    found: list[tuple[str, str]] = []
    decode = Message.decode

    def recorded(self, *given, **named):
        value = decode(self, *given, **named)
        if "limits" in named:
            found.append((self.name, threading.current_thread().name))
        return value

    monkeypatch.setattr(Message, "decode", recorded)
    return found


@pytest.mark.timeout(240)
def test_large_requests_are_decoded_in_a_thread_and_answered_once_for_each_name(wire, decoders, caplog) -> None:
    def asked(count: int) -> dict[str, Any]:
        return {"topics": [{"name": "jobs"}] * count, "allow_auto_topic_creation": False}

    assert [topic["name"] for topic in wire.call("Metadata", 9, asked(IN_THE_LOOP.of_array))["topics"]] == ["jobs"]
    assert [topic["name"] for topic in wire.call("Metadata", 9, asked(DEFAULT.of_array))["topics"]] == ["jobs"]
    wire.call("Produce", 9, produce(batch(b"a"), topic="jobs"))
    (_, first), (_, second), *others = decoders
    assert first == "sparklog-gateway-loop"
    assert second.startswith("sparklog-gateway-codec")
    assert all(thread == "sparklog-gateway-loop" for _, thread in others)
    wire.send("Metadata", 9, asked(DEFAULT.of_array + 1))
    assert wire.is_closed()
    assert "Metadata of version 9: 10001 elements" in caplog.text


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("api", "version", "body", "answers"),
    [
        ("DescribeGroups", 5, {"groups": ["g", "g"]}, "groups"),
        ("FindCoordinator", 4, {"key_type": 0, "coordinator_keys": ["g", "g"]}, "coordinators"),
        ("OffsetFetch", 8, {"groups": [{"group_id": "g", "topics": None}] * 2}, "groups"),
        ("ConsumerGroupDescribe", 0, {"group_ids": ["g", "g"]}, "groups"),
        ("DescribeConfigs", 4, {"resources": [{"resource_type": 2, "resource_name": "jobs"}] * 2}, "results"),
        ("DescribeTransactions", 0, {"transactional_ids": ["x", "x"]}, "transaction_states"),
        ("DescribeProducers", 0, {"topics": [{"name": "jobs", "partition_indexes": [0]}] * 2}, "topics"),
    ],
)
def test_what_is_named_twice_is_answered_once(wire, api, version, body, answers) -> None:
    """✗ Ten thousand times a topic of as many partitions would be an answer of gigabytes."""
    assert len(wire.call(api, version, body)[answers]) == 1


def test_subscriptions_of_a_member_are_bounded() -> None:
    """✗ Eight MiB of topics without a name: four million, decoded in the event loop."""
    data = b"\0\0" + (MOST_TOPICS + 1).to_bytes(4, "big") + b"\0\0" * (MOST_TOPICS + 1)
    with pytest.raises(ValueError, match="20001 topics: expected at most 20000"):
        named_topics(data, MOST_TOPICS)
    assert len(named_topics(b"\0\0\0\0\0\2\0\0\0\0", 2)) == 2


@pytest.mark.parametrize("size", [32_767, 32_768])
def test_a_string_is_no_longer_than_kafka_s(size: int) -> None:
    """✗ A compact string had eight megabytes, and to quote it took the event loop a second."""
    request = message("FindCoordinatorRequest")
    data = request.encode({"key_type": 0, "coordinator_keys": ["x" * size]}, 6)
    if size > 32_767:
        with pytest.raises(WireError, match="a string of 32768 bytes at byte 5: expected at most 32767"):
            request.decode(data, 6)
    else:
        assert len(request.decode(data, 6)["coordinator_keys"][0]) == size


def test_a_produce_of_many_partitions_is_answered_in_turns_with_others() -> None:
    """✗ Its answer was put together at once, and took the event loop 70 ms of CPU."""

    async def turns_of_others() -> int:
        count = 0

        async def other() -> None:
            nonlocal count
            while True:
                count += 1
                await asyncio.sleep(0)

        loop = asyncio.get_running_loop()
        partitions = [{"index": number} for number in range(2_000)]
        pending: list[asyncio.Future[Answer]] = []
        for partition in partitions:
            pending.append(loop.create_future())
            pending[-1].set_result(partition)
        body = {"topic_data": [{"name": f"t{each['index']}", "partition_data": [each]} for each in partitions]}
        beside = asyncio.ensure_future(other())
        backend: Any = SimpleNamespace(extras={})
        answer = await _answer(backend, Request(9, body, "", ("", 0)), pending)
        beside.cancel()
        assert [one["partition_responses"][0]["index"] for one in answer["responses"]] == [*range(2_000)]
        return count

    assert asyncio.run(turns_of_others()) > 5


@pytest.mark.parametrize(("count", "is_beside"), [(900, False), (1_100, True)])
def test_what_a_large_answer_refuses_is_sought_beside_the_loop(count: int, *, is_beside: bool) -> None:
    """✗ To find it took the event loop 90 ms of CPU."""
    threads: list[int] = []
    log: Any = SimpleNamespace(refused=lambda *_: threads.append(threading.get_ident()))

    async def noted() -> int:
        backend: Any = SimpleNamespace(run_codec=asyncio.to_thread)
        answer = {"topics": [{"name": f"t{number}", "error_code": 29} for number in range(count)]}
        await note_refused(backend, log, "Metadata", answer, {}, count)
        return threading.get_ident()

    loop = asyncio.run(noted())
    assert [one != loop for one in threads] == [is_beside]


def test_a_commit_of_many_offsets_takes_turns_with_others() -> None:
    """✗ Twenty thousand partitions took the event loop 95 ms of CPU at once."""

    async def turns_of_others() -> int:
        count = 0

        async def other() -> None:
            nonlocal count
            while True:
                count += 1
                await asyncio.sleep(0)

        partition = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
        body = {"group_id": "", "topics": [{"name": f"t{n}", "partitions": [partition]} for n in range(2_000)]}
        backend: Any = SimpleNamespace(extras={"groups": object()})
        beside = asyncio.ensure_future(other())
        answer = await offset_commit(backend, Request(2, body, "", ("", 0)))
        beside.cancel()
        assert len(answer["topics"]) == 2_000
        return count

    assert asyncio.run(turns_of_others()) > 5
