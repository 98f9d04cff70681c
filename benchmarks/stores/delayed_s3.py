"""An S3 server behind the latency proxy, for processes that measure: they find it by their environment."""

from __future__ import annotations

import os
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import PROXY_VARIABLE, Running, percentile
from benchmarks.processes import process_cpu_seconds
from benchmarks.stores.latency_proxy import control, serve
from benchmarks.stores.prices import EXPRESS, STANDARD, Prices
from proof.torture.servers import BUCKET, NO_VERSITYGW, Server, find_versitygw, versitygw

__all__ = ["EXPRESS_5", "INSTANT", "PROFILES", "STANDARD_20_50", "STANDARD_TAIL", "DelayedS3", "Profile", "s3_or_none"]

REGION = "us-east-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How late a store answers. PUT, LIST, DELETE and POST take ``put_ms``, GET and HEAD ``get_ms``."""

    name: str
    get_ms: float
    put_ms: float
    has_tail: bool = False
    prices: Prices = STANDARD


INSTANT = Profile(name="0 ms", get_ms=0, put_ms=0)
EXPRESS_5 = Profile(name="5/5 ms", get_ms=5, put_ms=5, prices=EXPRESS)
STANDARD_20_50 = Profile(name="20/50 ms", get_ms=20, put_ms=50)
STANDARD_TAIL = Profile(name="20/50 ms, tail", get_ms=20, put_ms=50, has_tail=True)
PROFILES = (INSTANT, EXPRESS_5, STANDARD_20_50, STANDARD_TAIL)


class DelayedS3:
    """The server and the proxy in front of it, at work."""

    def __init__(self, server: Server, proxy_port: int) -> None:
        self._server = server
        self.endpoint = f"http://127.0.0.1:{proxy_port}"
        options = server.storage_options
        self.environment: Mapping[str, str] = {
            "AWS_ACCESS_KEY_ID": options["key"],
            "AWS_SECRET_ACCESS_KEY": options["secret"],
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            PROXY_VARIABLE: self.endpoint,
        }
        """What processes find the store by, and the counts."""

    def use(self, profile: Profile) -> None:
        """Delay from now on as ``profile`` says; the tail begins anew."""
        delays = f"get_ms={profile.get_ms}&put_ms={profile.put_ms}&tail={int(profile.has_tail)}"
        control(self.endpoint, f"?{delays}")

    def new_root(self) -> str:
        """The URI of a cluster that nobody has used."""
        return f"s3://{BUCKET}/{uuid.uuid4().hex[:12]}"

    def cpu_s(self) -> float:
        """CPU seconds of the server and the proxy since their start; NaN where the system doesn't tell."""
        of_server = process_cpu_seconds(self._server.process.pid)
        return control(self.endpoint)["cpu_s"] + (float("nan") if of_server is None else of_server)

    def own_cost(self, profile: Profile, requests: int) -> str:
        """A sentence that says what the proxy and the server need themselves: by small PUTs, one after the other."""
        from sparklog.storage import open_store

        store = open_store(self.new_root())
        taken: list[float] = []
        cpu_s = control(self.endpoint)["cpu_s"]
        for number in range(requests):
            began = time.perf_counter()
            store.put_many({f"{number}": b"x"})
            taken.append((time.perf_counter() - began) * 1000)
        cpu_ms = (control(self.endpoint)["cpu_s"] - cpu_s) / requests * 1000
        store.close()
        return (
            f"a PUT that is to take {profile.put_ms:g} ms takes {percentile(taken, 50):.1f} (p50), "
            f"{percentile(taken, 99):.1f} (p99); the proxy's CPU for it: {cpu_ms:.2f} ms"
        )


@contextmanager
def s3_or_none() -> Iterator[DelayedS3 | None]:
    """versitygw over a new folder, behind the proxy; None, with a line that says why, where it isn't installed.

    Within the block the environment of this process and its children leads to it.
    """
    program = find_versitygw()
    if program is None:
        print(f"Object stores are left out: {NO_VERSITYGW}")
        yield None
        return
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        server = versitygw(program, Path(folder), keeps_connections=True)
        try:
            with Running(serve, host="127.0.0.1", port=int(server.endpoint.rpartition(":")[2])) as proxy:
                s3 = DelayedS3(server, int(proxy.hear()))
                with environment(s3.environment):
                    yield s3
        finally:
            server.kill()


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables of this process within the block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
