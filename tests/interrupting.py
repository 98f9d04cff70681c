"""KeyboardInterrupts at every point of a call at which one may come, one after the other."""

from __future__ import annotations

import dis
import gc
import sys
from collections.abc import Callable, Iterator
from functools import cache
from types import CodeType, FrameType
from typing import Any

__all__ = ["POINTS", "interrupt", "numbers"]

POINTS = ("instruction", "call")
"""Where one comes: before any instruction; or where Python itself runs signal handlers: as a function begins, and as a
call of something that is written in C returns."""

_MOST = 20_000


class _Points:
    """Counts the points in our own functions, and acts at one of them."""

    def __init__(self, at: int, act: Callable[[], object]) -> None:
        self.left = at
        self.act = act
        self.was_reached = False

    def reach(self) -> None:
        if self.was_reached:
            return
        if self.left == 0:
            self.was_reached = True
            self.act()
            return
        self.left -= 1

    def trace(self, frame: FrameType, event: str, _: object) -> Any:
        if "/sparklog/" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and frame.f_lasti not in _without_handlers(frame.f_code):
            self.reach()
        return self.trace

    def profile(self, frame: FrameType, event: str, _: object) -> None:
        if "/sparklog/" in frame.f_code.co_filename and event in ("call", "c_return"):
            self.reach()


def _raise() -> None:
    raise KeyboardInterrupt


def interrupt(call: Callable[[], object], *, at: int, point: str, act: Callable[[], object] = _raise) -> bool:
    """Make a call, and interrupt it at its point number ``at``, from 0. False: it doesn't have so many.

    Args:
        act: what the signal's handler does, in the thread that is interrupted.
    """
    points = _Points(at, act)
    collects = gc.isenabled()
    gc.disable()  # what another test has left is finalized in any thread, and isn't what is interrupted here
    before = sys.gettrace(), sys.getprofile()  # of a debugger, or of whatever measures coverage
    try:
        if point == "instruction":
            sys._getframe().f_trace_opcodes = True  # 3.12.1 traces instructions only if one asked before settrace
            sys.settrace(points.trace)
        else:
            sys.setprofile(points.profile)
        call()
    except KeyboardInterrupt:
        if not points.was_reached:
            raise
    finally:
        sys.settrace(before[0])
        sys.setprofile(before[1])
        if collects:
            gc.enable()
    return points.was_reached


def numbers() -> Iterator[int]:
    """0, 1, 2, …: for whoever stops at a point that isn't there."""
    yield from range(_MOST)
    raise AssertionError(f"a call of more than {_MOST} points: it isn't the short one that this is for")


@cache
def _without_handlers(code: CodeType) -> frozenset[int]:
    """Instructions before which Python runs no signal handler: it does so only as a function begins, after a call and
    as a loop goes round."""
    return _of_with(code) | _of_return(code)


def _of_return(code: CodeType) -> frozenset[int]:
    """The instructions that return a variable right after an attribute was set."""
    all_of_it = [*dis.get_instructions(code)]
    found: set[int] = set()
    for store, load, last in zip(all_of_it, all_of_it[1:], all_of_it[2:], strict=False):
        if store.opname == "STORE_ATTR" and load.opname.startswith("LOAD_FAST") and last.opname == "RETURN_VALUE":
            found |= {load.offset, last.offset}
    return frozenset(found)


def _of_with(code: CodeType) -> frozenset[int]:
    """The instructions by which ``with`` enters and leaves: Python runs no signal handler between them."""
    begins: dict[int, int] = {}
    found = set()
    line = before = -1
    for instruction in dis.get_instructions(code):
        line = instruction.starts_line if isinstance(instruction.starts_line, int) else line
        at = line
        if instruction.positions and instruction.positions.lineno:
            at = instruction.positions.lineno
        if at in begins and instruction.offset > begins[at]:
            found |= {instruction.offset, before}
        elif instruction.opname in ("BEFORE_WITH", "SETUP_WITH", "LOAD_SPECIAL"):
            begins[at] = instruction.offset
        before = instruction.offset if instruction.opname == "NOP" else -1
    return frozenset(found)
