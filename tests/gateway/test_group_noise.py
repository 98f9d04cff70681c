"""Requests about groups with whatever their fields can hold: each is answered, and nothing else goes wrong."""

from __future__ import annotations

import logging
import random
import uuid
from typing import Any

import pytest

import sparklog.gateway
from sparklog import Admin, NewTopic
from sparklog.gateway.apis import APIS
from sparklog.gateway.coordination.consumer_protocol import encode_subscription
from tests.gateway.test_server import Wire

KEYS = (8, 9, 10, 11, 12, 13, 14, 15, 16, 42, 47, 68, 69)
TEXTS = ("", "g", "h", "jobs", "none", "range", "consumer", "uniform", "x" * 300, "\0", "é/..", "..", "(")
BYTES = (b"", b"\0" * 3, b"\xff" * 20, encode_subscription(["jobs"]))
REQUESTS = 400


class Noise:
    """Random messages; member ids that were given are said again."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.members = ["", "m"]

    def of(self, field, version):
        """A value of a field."""
        if version in field.nullable and self.random.random() < 0.2:
            return None
        if field.kind.startswith("[]"):
            return [self.one(field, field.kind[2:], version) for _ in range(self.random.choice((0, 1, 1, 2)))]
        return self.one(field, field.kind, version)

    def one(self, field, kind, version):
        """A value of a field that is no array, or of an array's element."""
        choice = self.random.choice
        if kind.startswith("int"):
            most = 2 ** (int(kind[3:]) - 1)
            return choice((0, 1, 2, 3, -1, -2, 5, most - 1, -most))
        if kind == "string":
            return choice(self.members if field.name == "member_id" and self.random.random() < 0.8 else TEXTS)
        plain = {"bool": (True, False), "bytes": BYTES, "uuid": (uuid.UUID(int=0), uuid.UUID(int=1))}
        return choice(plain[kind]) if kind in plain else self.message(field.fields, version)

    def message(self, fields, version):
        """Values of all fields of a version."""
        return {field.name: self.of(field, version) for field in fields if version in field.versions}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_noise_is_answered(caplog, seed):
    cluster = f"memory://noise-{uuid.uuid4().hex}"
    Admin(cluster).create_topics([NewTopic("jobs", 2)])
    noise = Noise(seed)
    settings: dict[str, Any] = {"group_initial_rebalance_delay_ms": 0, "group_max_session_timeout_ms": 2_000}
    with sparklog.gateway.serve(cluster, **settings) as servers:
        client = Wire(servers)
        for _ in range(REQUESTS):
            api = APIS[noise.random.choice(KEYS)]
            version = noise.random.randint(api.first, api.last)
            body = noise.message(api.request.fields, version)
            if api.name == "JoinGroup":  # short, so that nobody waits for long
                body |= {"session_timeout_ms": 1_000, "rebalance_timeout_ms": 200}
            answer = client.call(api.name, version, body)
            noise.members = [*noise.members[-4:], answer.get("member_id") or ""]
        client.close()
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
