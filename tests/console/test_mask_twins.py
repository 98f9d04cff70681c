"""What is masked can't be found out: two clusters that differ in it alone give the same answers to everything."""

from __future__ import annotations

import itertools
import json
import random
import re
import secrets
import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest

from sparklog.admin import Admin, NewTopic
from sparklog.clock import SystemClock
from sparklog.console import NamedSchema
from sparklog.console.jobs import TailJob
from sparklog.log import Cluster, open_cluster
from sparklog.model import Headers
from sparklog.producer import Producer
from sparklog.storage import MemoryStore
from tests.console.secret_records import CARD, MASKED, TYPED, card, headers, typed_value, values
from tests.console.support import TestClient, backend_of, console, consume
from tests.depth import by_depth


class _OneMoment(SystemClock):
    """Waits as any clock, and tells one time of day."""

    def now_ms(self) -> int:
        return 1_700_000_000_000


def a_twin(secret: str, patch: pytest.MonkeyPatch) -> Cluster:
    """A cluster with a secret in each topic; another one's ids and times are the same."""
    numbers = itertools.count(10**17)
    patch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=next(numbers)))
    patch.setattr(secrets, "randbits", lambda bits: next(numbers) % 2**bits)
    patch.setattr(secrets, "token_hex", lambda size: f"{next(numbers):0{2 * size}x}")
    clock = _OneMoment()
    cluster = open_cluster(MemoryStore(clock=clock), clock=clock)
    for topic in (NewTopic("people", 1), NewTopic("typed", 1, value_schema=TYPED)):
        Admin(cluster).create_topics([topic])
    for value in values(secret):
        send(cluster, "people", value, key=value, headers=headers(secret))
    send(cluster, "people", card(secret)[:-1], key=b"plain")
    for number in range(3):
        send(cluster, "typed", typed_value(f"{secret[:-1]}{number}", number))
    consume(cluster, "readers", 3, ["people"])
    return cluster


def send(cluster: Cluster, topic: str, value: Any, *, key: bytes | None = None, headers: Headers | None = None) -> None:
    with Producer(cluster=cluster) as producer:
        producer.send(topic, value, key=key, headers=headers, partition=0, timestamp_ms=1_700_000_000_000).get(60)


TOPICS = {
    "people": ("person", "people", "person.ssn", "text", "twice", "query"),
    "typed": ("person", "people", "by_name", "document", "blob", "PIN", "person.name"),
}
"""The fields that are searched in each topic."""


def questions(secret: str) -> Iterator[str]:
    """Paths that try to find a secret out."""
    yield from ("/", "/api/topics", "/api/groups", "/api/maintenance", "/metrics", "/sql?q=from+people")
    yield "/api/sql?q=select+value+from+people"
    yield from ("/group?name=readers", "/api/groups/readers", "/api/transactions")
    for topic, fields in TOPICS.items():
        yield from (f"/topics/{topic}", f"/topics/{topic}/files", f"/topics/{topic}/compare?from=1&to=2")
        yield from (f"/api/topics/{topic}", f"/api/topics/{topic}/files", f"/api/topics/{topic}/commits")
        yield from (f"/topics/{topic}/records/0/{at}" for at in ("1", "2", "9", "11", "0/raw", "0?decode=hex"))
        yield f"/topics/{topic}/records?mode=oldest"
        for asked, prefix in zip(searches(secret, fields), itertools.cycle(["", "/api"]), strict=False):
            yield f"{prefix}/topics/{topic}/records?{urlencode(asked)}"


def searches(secret: str, fields: tuple[str, ...]) -> Iterator[dict[str, str]]:
    part = secret[:3]
    yield from ({"mode": "oldest", "decode": "text"}, {"mode": "newest"}, {"mode": "offset", "offset": "1"})
    yield from ({"mode": "text", "text": text} for text in (part, '"ssn": "', "ann"))
    yield from ({"mode": "key", "key": key.hex(), "key_format": "hex"} for key in values(secret)[:1])
    for name, value in (("document", json.dumps({"ssn": secret})), ("ssn", secret)):
        yield {"mode": "header", "header": name, "header_value": value}
    for field, comparison in itertools.product(fields, ("contains", "<")):
        yield {"mode": "field", "field": field, "comparison": comparison, "value": part}


def tailed(client: TestClient, cluster: Cluster, topic: str, secret: str) -> bytes:
    """What one who follows a topic is sent of a record of each kind."""
    shape = backend_of(client).shape(topic)
    job = TailJob(
        cluster,
        topic,
        partition=None,
        how="auto",
        masks=shape.masks,
        schema=shape.named_schema,
        give_back=lambda: None,
    )
    records = [typed_value(secret, 7)] if topic == "typed" else values(secret)
    events = iter(job)
    found = [next(events)]
    for record in records:
        send(cluster, topic, record, headers=headers(secret))
        found.append(next(event for event in events if not event.startswith(b": still here")))
    job.cancel()
    job.close()
    return b"".join(found)


def answers(cluster: Cluster, secret: str) -> dict[str, tuple[int, bytes]]:
    known: dict[str, Any] = {"masks": MASKED, "value_schemas": {"people": NamedSchema(CARD)}}
    with console(cluster, **known) as client:
        found = {path: answered(client, path) for path in questions(secret)}
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
        for name, given in (
            ("list_topics", {}),
            ("describe_topic", {"topic": "typed"}),
            ("group_lag", {}),
            ("sql", {"query": "select value from people"}),
        ):
            answer = client.post("/mcp", json={**call, "params": {"name": name, "arguments": given}})
            found[f"mcp {name}"] = answer.status_code, answer.content
        return found | {f"tail {topic}": (200, tailed(client, cluster, topic, secret)) for topic in TOPICS}


def answered(client: TestClient, path: str) -> tuple[int, bytes]:
    answer = client.get(path)
    return answer.status_code, answer.content


_NUMBERS = re.compile(rb"[0-9a-f.+-]+")


def are_alike(path: str, one: tuple[int, bytes], other: tuple[int, bytes]) -> bool:
    """Are two answers the same? Those that have sizes and names of files may differ in numbers: a file has checksums,
    which are numbers of one to five bytes, and threads draw ids in any order."""
    if "/records" in path or "/sql" in path:
        return one == other
    return one[0] == other[0] and _NUMBERS.sub(b"0", one[1]) == _NUMBERS.sub(b"0", other[1])


@pytest.mark.slow
def test_twins_that_differ_in_secrets_alone_answer_alike() -> None:
    draw = by_depth(gate=random.Random(1), nightly=random.SystemRandom())
    pair = ["".join(draw.choices("0123456789abcxyz-", k=6)) for _ in "ab"]
    seen = []
    for secret in pair:
        with pytest.MonkeyPatch.context() as patch:
            seen.append(answers(a_twin(secret, patch), pair[0]))
    one, other = seen
    assert [path for path, answer in one.items() if not are_alike(path, answer, other[path])] == [], pair
    assert sum(b"ann" in body for _, body in one.values()) > 10
