"""Reads Kafka's definitions of its messages from a kafka-clients jar, and writes those that the gateway serves.

    python java/kafka_messages.py kafka-clients-4.3.1.jar sparklog/gateway/wire/definitions.json

The definitions are Apache Kafka's, under the Apache License, Version 2.0. What is left out: comments, descriptions, and
what only a broker's own code is generated from.
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

API_KEYS = {
    *range(4),
    *range(8, 27),
    28,
    *range(29, 34),
    *range(35, 38),
    42,
    43,
    *range(44, 49),
    50,
    51,
    60,
    61,
    65,
    66,
    68,
    69,
    74,
    75,
}
KEPT = ("name", "type", "versions", "nullableVersions", "default", "tag", "taggedVersions", "flexibleVersions")
LICENCE = (
    "Apache Kafka's definitions of its messages, Copyright The Apache Software Foundation, licensed under the Apache "
    "License, Version 2.0; a subset without comments and descriptions, made by java/kafka_messages.py"
)


def field(found: dict[str, Any]) -> dict[str, Any]:
    """A field of a message, as it is kept."""
    kept = {name: found[name] for name in KEPT if name in found}
    if "fields" in found:
        kept["fields"] = [field(inner) for inner in found["fields"]]
    return kept


def message(found: dict[str, Any]) -> dict[str, Any]:
    """One definition, as it is kept."""
    kept = {
        name: found[name] for name in ("name", "type", "apiKey", "validVersions", "flexibleVersions") if name in found
    }
    kept["fields"] = [field(inner) for inner in found["fields"]]
    if "commonStructs" in found:
        kept["commonStructs"] = [field(inner) for inner in found["commonStructs"]]
    return kept


def main() -> None:
    jar, target = sys.argv[1:]
    with zipfile.ZipFile(jar) as archive:
        names = sorted(name for name in archive.namelist() if re.fullmatch(r"common/message/\w+\.json", name))
        texts = [archive.read(name).decode() for name in names]
    found = [json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)) for text in texts]
    extra = {"RequestHeader", "ResponseHeader"}
    kept = [message(one) for one in found if one["name"] in extra or one.get("apiKey") in API_KEYS]
    lines = ",\n".join(json.dumps(one, separators=(",", ":")) for one in kept)
    source = re.sub(r".*kafka-clients-(.+)\.jar", r"\1", jar)
    head = json.dumps({"licence": LICENCE, "version": source})[:-1]
    Path(target).write_text(f'{head}, "messages": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
