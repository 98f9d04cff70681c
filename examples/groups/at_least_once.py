"""At least once: do the work, then commit. Whoever dies in between has it done again by another.

``python -m examples.groups.at_least_once`` plays it in a new folder: a worker dies in the middle, another takes over.
"""

from __future__ import annotations

from collections.abc import Callable

from examples.groups.playground import jobs, orders
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
            do(record.value.decode())
            consumer.commit()  # only now: dying before this line does the job again


def main() -> None:
    done: list[str] = []

    def do_and_die(job: str) -> None:
        done.append(job)
        if len(done) == 5:
            raise SystemExit("died after the work, before the commit")

    with jobs(count=10) as root:
        try:
            work(root, do_and_die)
        except SystemExit as death:
            print(death)
        work(root, done.append)
    print("done:", *done)
    twice = sorted({job for job in done if done.count(job) > 1}, key=orders)
    if set(done) != {f"job {number}" for number in range(10)} or len(twice) != 1:
        raise SystemExit(f"expected all ten jobs and one of them twice, twice were {twice}")
    print("every job was done, and twice only the one in whose middle we died:", *twice)


if __name__ == "__main__":
    main()
