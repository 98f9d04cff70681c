"""The recipe with Redis in docs/outbox.md runs as it is printed, on a Redis that is a dict here."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from sparklog.testing import ManualClock
from sparklog.testing.processing import AppDriver

PAGE = Path(__file__).parents[2] / "docs" / "outbox.md"


class ARedis:
    """``SET`` with ``NX`` and ``EX``, ``GET`` and ``DEL``."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._found: dict[str, tuple[str, float]] = {}

    def get(self, name: str) -> str | None:
        value, until_ms = self._found.get(name, ("", 0.0))
        return value if self._clock.now_ms() < until_ms else None

    def set(self, name: str, value: str, *, ex: int, nx: bool = False) -> bool | None:
        if nx and self.get(name) is not None:
            return None
        self._found[name] = (value, self._clock.now_ms() + 1_000 * ex)
        return True

    def delete(self, name: str) -> int:
        return int(self._found.pop(name, None) is not None)


class Mails:
    """Takes texts, and fails as often as it is told."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.failures = 0

    def __call__(self, text: str) -> None:
        if self.failures:
            self.failures -= 1
            raise ConnectionError("no answer")
        self.sent.append(text)


class Recipe:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock, self.mails = ManualClock(), Mails()
        self.redis = ARedis(self.clock)
        module: Any = ModuleType("redis")
        module.Redis = lambda **_: self.redis
        monkeypatch.setitem(sys.modules, "redis", module)
        [code] = [code for code in re.findall(r"^```py\n(.*?)^```$", PAGE.read_text(), re.M | re.S) if "redis" in code]
        names: dict[str, Any] = {"__name__": "recipe", "send_mail": self.mails}
        exec(compile(code, PAGE, "exec"), names)
        self.driver = AppDriver(names["app"], clock=self.clock)

    def send(self, text: str, message: bytes) -> None:
        self.driver.send("orders", text, headers=[("id", message)])


def test_a_message_that_was_sent_twice_is_mailed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = Recipe(monkeypatch)
    for text, message in (("a", b"1"), ("a again", b"1"), ("b", b"2")):
        recipe.send(text, message)
    recipe.driver.run()
    assert recipe.mails.sent == ["a", "b"]
    assert recipe.driver.committed("orders") == 3


def test_a_mail_that_failed_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = Recipe(monkeypatch)
    recipe.mails.failures = 1
    recipe.send("a", b"1")
    recipe.driver.run()
    assert recipe.mails.sent == []
    recipe.driver.advance(60_000)
    assert recipe.mails.sent == ["a"]


def test_a_message_that_a_dead_worker_began_is_mailed_after_its_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = Recipe(monkeypatch)
    recipe.redis.set("mails:1", "begun", ex=300, nx=True)  # by a worker that died then
    recipe.send("a", b"1")
    recipe.driver.run()
    for _ in range(4):
        recipe.driver.advance(60_000)
    assert recipe.mails.sent == []
    recipe.driver.advance(60_000)
    assert recipe.mails.sent == ["a"]
    assert recipe.driver.dead_letters == []
