"""At most once: commit, then do the work. Whoever dies in between leaves it undone, and nobody does it twice.

``python -m examples.groups.at_most_once`` plays it in a new folder: a worker dies in the middle, another takes over.
"""

from __future__ import annotations

from collections.abc import Callable

from examples.groups.playground import jobs
from sparklog import Consumer


def work(root: str, do: Callable[[str], None]) -> None:
    """Do every job that there is. Returns when there is none for five seconds."""
    with Consumer(
        "jobs",
        cluster=root,
        group_id="workers",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=5_000,
        session_timeout_ms=10_000,
        heartbeat_interval_ms=200,
    ) as consumer:
        for record in consumer:
            consumer.commit()  # the position is beyond the record already: dying after this line skips the job
            do(record.value.decode())


def main() -> None:
    begun: list[str] = []

    def die(job: str) -> None:
        begun.append(job)
        if len(begun) == 5:
            begun.pop()
            raise SystemExit(f"died after the commit, before {job} was done")

    with jobs(count=10) as root:
        try:
            work(root, die)
        except SystemExit as death:
            print(death)
        work(root, begun.append)
    print("done:", *begun)
    if len(begun) != 9 or len(set(begun)) != 9:
        raise SystemExit("expected nine of ten jobs, each once")
    print("no job was done twice, and the one that we died before was not done at all")


if __name__ == "__main__":
    main()
