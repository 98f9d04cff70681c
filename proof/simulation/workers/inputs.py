"""What is sent to a world of workers: numbered records, each of a kind that says how its handler will fare."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

__all__ = ["DELAYED", "Delayed", "Input", "Inputs"]

_KINDS = {"ok": 8, "flaky": 4, "bad": 4, "hopeless": 2, "refused": 3}
"""How a handler fares, and how often: it succeeds; fails at first; fails until its dead letter is replayed; always
fails; makes an output that its topic refuses, until its dead letter is replayed."""
DELAYED = "later"
"""The topic of records with ``deliver_at``."""
_KEYS = 3


@dataclass(frozen=True, slots=True)
class Input:
    """A record that is sent to be handled."""

    number: int
    topic: str
    kind: str
    key: bytes | None
    message_id: str
    """By which the inbox knows it; some have the same one, others one that differs in its case or a space alone."""

    @property
    def value(self) -> bytes:
        """By which it is known again."""
        return f"{self.number}:{self.kind}".encode()


@dataclass(frozen=True, slots=True)
class Delayed:
    """A record that is sent to be delivered later."""

    value: str
    deliver_at_ms: int
    life: int
    """Of how many topics of the name it is for the last."""


@dataclass(slots=True)
class Inputs:
    """All that was sent."""

    sent: list[Input] = field(default_factory=list)
    delayed: list[Delayed] = field(default_factory=list)

    def draw(self, draw: random.Random, topic: str) -> Input:
        """The next input of a topic."""
        kinds = {kind: weight for kind, weight in _KINDS.items() if topic == "in" or kind in ("ok", "flaky", "bad")}
        kind = draw.choices([*kinds], [*kinds.values()])[0]
        number = len(self.sent)
        key = None if topic == "in" and draw.random() < 0.1 else b"k%d" % draw.randrange(_KEYS)
        self.sent.append(Input(number, topic, kind, key, _message_id(draw, number)))
        return self.sent[-1]


def _message_id(draw: random.Random, number: int) -> str:
    """The id of a message: mostly its own, or one that was sent before; others differ from it hardly."""
    which = number // 3 if draw.random() < 0.85 else draw.randint(0, number) // 3
    return draw.choice([f"m{which}", f"M{which}", f"m{which} "])
