"""Names in a table's log folder."""

from __future__ import annotations

import pytest

from sparklog.delta.names import (
    CheckpointPart,
    aside_version,
    checkpoint_path,
    entry_path,
    log_folder,
    parse_name,
    version_prefix,
)


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("00000000000000000000.json", 0),
        ("00000000000000000042.json", 42),
        ("99999999999999999999.json", 10**20 - 1),
        ("00000000000000000042.checkpoint.parquet", CheckpointPart(42, 1, 1)),
        ("00000000000000000042.checkpoint.0000000002.0000000003.parquet", CheckpointPart(42, 2, 3)),
        ("_last_checkpoint", None),
        ("00000000000000000042.crc", None),
        ("00000000000000000001.00000000000000000042.compacted.json", None),
        ("00000000000000000042.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json", None),
        ("00000000000000000042.checkpoint.0000000002.parquet", None),
        ("42.json", None),
        ("000000000000000000042.json", None),
        ("00000000000000000042.json.tmp", None),
        (".00000000000000000042.json", None),
        ("00000000000000000042.json\n", None),
    ],
)
def test_a_name_is_an_entry_a_part_of_a_checkpoint_or_nothing_of_ours(
    name: str, parsed: int | CheckpointPart | None
) -> None:
    assert parse_name(name) == parsed


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("00000000000000000042.crc", 42),
        ("00000000000000000001.00000000000000000042.compacted.json", 42),
        ("00000000000000000042.json", None),
        ("00000000000000000042.checkpoint.parquet", None),
        ("00000000000000000001.00000000000000000042.crc", None),
        ("00000000000000000042.compacted.json", None),
        (".00000000000000000042.crc", None),
        ("00000000000000000042.crc\n", None),
    ],
)
def test_a_name_is_of_what_spark_writes_beside_a_version(name: str, version: int | None) -> None:
    assert aside_version(name) == version


def test_paths_are_parsed_back_to_their_version() -> None:
    assert parse_name(entry_path("t", 42).removeprefix(log_folder("t"))) == 42
    assert parse_name(checkpoint_path("t", 42).removeprefix(log_folder("t"))) == CheckpointPart(42, 1, 1)


def test_a_versions_prefix_sorts_after_all_lower_versions_and_before_all_of_its_own() -> None:
    below = [
        entry_path("t", 9),
        checkpoint_path("t", 9),
        f"{log_folder('t')}{9:020d}.checkpoint.0000000001.0000000001.p",
    ]
    own = [
        entry_path("t", 10),
        checkpoint_path("t", 10),
        f"{log_folder('t')}{10:020d}.checkpoint.0000000001.0000000001.p",
    ]
    assert max(below) < version_prefix("t", 10) < min(own)
