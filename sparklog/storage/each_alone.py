"""Going over many objects, so that one that can't be read hinders no other, and a store that can't be read ends it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from itertools import chain, islice
from typing import TypeVar

from sparklog.clock import SystemClock
from sparklog.errors import StoreError
from sparklog.parallel import AT_ONCE, parallel_map
from sparklog.storage.base import ObjectInfo, ObjectStore
from sparklog.storage.blame import StoreJudge
from sparklog.storage.ground import read_cluster_id
from sparklog.storage.retrying import RetryingStore

__all__ = ["check_of_one", "each_alone", "list_each_folder", "one_alone", "read_each"]

_EACH_MS = 5_000.0
"""For so long a call for one of many files is repeated: a bad sector, which looks like a disk that is away for a
moment, is met again and again."""

_CLOCK = SystemClock()

S = TypeVar("S")
T = TypeVar("T")


def one_alone(store: ObjectStore, call: Callable[[], T]) -> T | Exception:
    """The result of a call about one object, or the error, where it is that object's.

    Raises:
        SparklogError: the store can't be read (:mod:`sparklog.storage.blame`).
    """
    bounded = store.patience_by_default(_EACH_MS) if isinstance(store, RetryingStore) and not store.is_remote else None
    try:
        with bounded or nullcontext():
            return call()
    except Exception as error:
        check_of_one(store, error)
        return error


def check_of_one(store: ObjectStore, error: Exception) -> None:
    """Return if an error is one object's: whoever met it reports it and goes on.

    Raises:
        SparklogError: the store can't be read (:mod:`sparklog.storage.blame`).
    """
    judge = store.judge if isinstance(store, RetryingStore) else StoreJudge(lambda: read_cluster_id(store), _CLOCK)
    judge.check(error)


def each_alone(
    store: ObjectStore, call: Callable[[S], T], items: Iterable[S], *, at_once: int = AT_ONCE
) -> list[T | Exception]:
    """The result of ``call`` for each item, in the order of the items, or the error of that item alone; up to
    ``at_once`` calls are under way at once.

    Raises:
        SparklogError: the store can't be read. Calls that haven't begun by then are not made.
    """
    faults: list[Exception] = []

    def alone(item: S) -> T | Exception:
        if faults:
            raise faults[0]
        try:
            return one_alone(store, lambda: call(item))
        except Exception as fault:
            faults.append(fault)
            raise

    return parallel_map(alone, items, at_once=at_once)


def read_each(store: ObjectStore, paths: Sequence[str]) -> Sequence[bytes | Exception | None]:
    """Whole objects, in the order of ``paths``: None for one that isn't there, the error for one that can't be read.

    Raises:
        SparklogError: the store can't be read.
    """
    together = one_alone(store, lambda: store.read_many(paths))
    if not isinstance(together, Exception):
        return together
    return each_alone(store, lambda path: store.read_many([path])[0], paths)


def list_each_folder(store: ObjectStore, prefix: str, errors: dict[str, Exception]) -> Iterator[ObjectInfo]:
    """Every object below a folder, by path's byte order, but for folders directly in it that can't be listed.

    One LIST for each 1,000 objects; from the first that can't be listed on, one for each folder at least, 32 at a time.

    Args:
        prefix: ends with ``/``.
        errors: gets why folders can't be listed, by their names.
    Raises:
        SparklogError: the store can't be read, or ``prefix`` itself can't be listed.
    """
    seen = ""
    walk = store.list(prefix)
    first = one_alone(store, lambda: next(walk, None))
    if first is None:
        return
    if not isinstance(first, Exception):
        try:
            for found in chain((first,), walk):
                seen = found.path
                yield found
            return
        except StoreError as error:
            check_of_one(store, error)
    folders = (f"{prefix}{name}/" for name in store.list_names(prefix))
    left = iter([folder for folder in folders if folder > seen or seen.startswith(folder)])
    while some := list(islice(left, AT_ONCE)):
        lists = each_alone(store, lambda folder: [*store.list(folder, after=seen)], some)
        for folder, listed in zip(some, lists, strict=True):
            if isinstance(listed, Exception):
                errors[folder[len(prefix) : -1]] = listed
            else:
                yield from listed
