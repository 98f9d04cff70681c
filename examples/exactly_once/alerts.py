"""The transformation: a flight that was late becomes an alert, every other one nothing. Pure."""

from __future__ import annotations

import json

from sparklog import ConsumerRecord

__all__ = ["LATE_MIN", "alert_of"]

LATE_MIN = 15
"""From so many minutes on, a flight is late."""


def alert_of(record: ConsumerRecord) -> bytes | None:
    """The alert as JSON. It names the record it was made of, so that each one can be told from every other."""
    flight = json.loads(record.value)
    delay_min = flight["arr_delay"]
    if delay_min is None or delay_min < LATE_MIN:
        return None
    alert = {
        "partition": record.partition,
        "offset": record.offset,
        "flight": f"{flight['carrier']}{flight['flight']}",
        "to": flight["dest"],
        "delay_min": delay_min,
    }
    return json.dumps(alert).encode()
