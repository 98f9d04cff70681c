"""Docstrings as the site shows them: roles of reStructuredText become code, and no error of a list is left out."""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:class|meth|func|attr|data|mod|exc):`~?([^`]+)`")
_SECTION = re.compile(r"^(?P<indent> *)(?P<name>Args|Raises|Returns|Source):(?P<rest>.*)$")


class AsShown(griffe.Extension):
    """Rewrites docstrings before they are parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for each module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = as_shown(obj.docstring.value)


def as_shown(text: str) -> str:
    """The docstring with Markdown in place of reStructuredText, and each error of ``Raises`` as an item."""
    text = _ROLE.sub(lambda role: f"`{role[1]}`", text)
    text = re.sub(r"^::\n", "\n", text, flags=re.MULTILINE).replace("::\n\n    ", ":\n\n    ")
    return "\n".join(_lines(text.split("\n")))


def _lines(lines: list[str]) -> list[str]:
    shown: list[str] = []
    section = ""
    for line in lines:
        heading = _SECTION.match(line)
        if heading:
            section = heading["name"]
            if section == "Source":  # a sentence, and no section of griffe's
                shown += ["", f"{heading['indent']}**Source:**{heading['rest']}"]
                continue
            shown.append("")  # griffe takes a section for one only after an empty line
        elif line and not line.startswith(" "):
            section = ""
        is_item = section == "Raises" and re.match(r"    \S", line) is not None
        if is_item and re.fullmatch(r"    [A-Z]\w+(, \w+)*[.,]?", line):  # errors without a word of their own
            line = f"{line.rstrip('.,')}: as their names say."
        elif is_item and not re.match(r"    [A-Z]\w+(, \w+)*:", line):  # such as: As :meth:`poll`.
            line = f"    SparklogError: {line.strip()}"
        shown.append(line)
    return shown
