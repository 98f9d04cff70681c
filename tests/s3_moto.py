"""Moto's S3 server, whose conditional writes are made atomic: ``python tests/s3_moto.py -H HOST -p PORT``.

By itself moto looks whether the name exists and writes then, in threads: now and then two of many racers both win
(moto 5.2.5), and a test of many writers finds a record lost. A real S3 doesn't do that.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from moto.s3.responses import S3Response
from moto.server import main

_ONE_AT_A_TIME = threading.RLock()
_WRITES = ("put_object", "copy_object", "_key_response_post", "delete_object")


def _alone(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def locked(*arguments: Any, **named: Any) -> Any:
        with _ONE_AT_A_TIME:
            return method(*arguments, **named)

    return locked


if __name__ == "__main__":
    for name in _WRITES:
        setattr(S3Response, name, _alone(getattr(S3Response, name)))
    main()
