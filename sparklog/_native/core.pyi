"""The types of ``core.pyx``."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

CHECKSUM: str

class Memory:
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class FutureBase:
    _batch: Any
    _index: int

_Binary = tuple[Memory | None, Memory, Memory]
_Column = tuple[int, Memory | None, Memory | None, Memory | None, list[Any]]
_Field = tuple[str, int, str, tuple[Any, ...]]

class Packer:
    type: Any
    def __init__(
        self, type: Any, fields: tuple[_Field, ...], prepare: Callable[[dict[Any, Any]], Any] | None
    ) -> None: ...

class Accumulator:
    size_bytes: int
    room_bytes: int
    @property
    def count(self) -> int: ...
    def append(
        self, key: bytes | None, value: bytes | None, now_ns: int, details: Any, size_bytes: int, /
    ) -> int | None: ...
    def take(self) -> tuple[int, Memory, _Binary, _Binary, Mapping[int, Any], tuple[Any, _Column] | None]: ...
    def drop(self) -> None: ...

class Gatherer:
    max_record_bytes: int
    overhead_bytes: int
    packer: Packer | None
    open: Any
    def __init__(self, future_type: type, clock: Callable[[], int], lock: Any, overhead_bytes: int) -> None: ...
    def add_plain(self, key: object, value: object, /) -> Any: ...
    def add_detailed(
        self, key: bytes | None, value: object, details: object, size: int, memory_bytes: int, /
    ) -> Any: ...

def create_file(folder: bytes, target: bytes, data: Any) -> int: ...
def create_in_held(held: int, device: int, inode: int, folder: bytes, name: bytes, data: Any) -> int: ...
def read_small_files(paths: tuple[bytes, ...]) -> list[bytes | bool | None]: ...
def list_folder(path: bytes, first: bytes) -> list[tuple[bytes, bool, int, int, int]] | None: ...
def create_files(files: tuple[tuple[bytes, bytes, Any], ...]) -> int: ...
def read_files(paths: tuple[bytes, ...], least_bytes: int) -> list[bytes | memoryview | None]: ...

class FileRoom: ...

class PlainRows:
    count: int
    def __init__(
        self,
        times: Any,
        first_time: int,
        count: int,
        first_column: tuple[Any, Any, Any, int],
        second_column: tuple[Any, Any, Any, int],
        order: Any,
    ) -> None: ...
    def bounds(self, start: int, count: int) -> tuple[int, int]: ...
    def next_page(self, which: int, start: int, count: int, limit_bytes: int) -> tuple[int, int, int]: ...
    def assemble(
        self,
        parts: list[bytes | tuple[int, int, int, int]],
        size: int,
        room: FileRoom | None = None,
        footer_at: int = -1,
    ) -> bytes | memoryview: ...

def read_plain(
    data: Any, count: int, places: tuple[tuple[int, int], ...], out: Any, parts: tuple[int, ...]
) -> tuple[int, int] | None: ...

class FooterPattern:
    def __init__(self, parts: tuple[bytes | int, ...]) -> None: ...

_PlainRun = tuple[int, int, Memory, tuple[int, ...], tuple[int, int], bytes | memoryview | None]

def read_plain_runs(
    paths: tuple[bytes, ...],
    runs: tuple[tuple[tuple[int, ...], int], ...],
    pattern: FooterPattern,
    most_bytes: int,
    least_bytes: int,
) -> list[_PlainRun] | None: ...
def file_schema(path: bytes) -> bytes | None: ...
def read_columns(
    paths: tuple[bytes, ...],
    counts: tuple[int, ...],
    schema: bytes,
    leaves: tuple[tuple[int, int, int], ...],
    outs: tuple[tuple[Any, Any], ...],
) -> list[tuple[int, Memory | None, Memory | None]] | None: ...
def murmur2_hashes(offsets: Any, data: Any, first: int, count: int) -> Memory: ...
def order_of(numbers: Any, bound: int) -> tuple[Memory, Memory]: ...
def take_binary(offsets: Any, data: Any, first: int, count: int, order: Any) -> tuple[Memory, Memory]: ...
def make_records(
    record_type: type,
    constants: tuple[Any, ...],
    offsets: tuple[Any, ...],
    timestamps: tuple[Any, ...],
    keys: tuple[Any, ...],
    values: tuple[Any, ...],
    count: int,
    headers: Sequence[Any] | None,
    header_sizes: Sequence[int] | None,
    key_function: Callable[..., Any] | None,
    value_function: Callable[..., Any] | None,
    is_key_alone: bool,
    is_value_alone: bool,
) -> tuple[list[Any], tuple[int, Exception] | None]: ...
def encode_varints(numbers: Sequence[int] | Iterable[int]) -> bytes: ...
def decode_varints(data: Any, at: int, count: int) -> tuple[list[int], int]: ...
def crc32(data: Any, value: int = 0, by_tables: bool = False) -> int: ...
def use_crc32(address: int) -> None: ...
def is_sealed(data: Any) -> bool | None: ...
def seal_pages(data: bytes, pages: tuple[int, ...], footer_at: int) -> bytes: ...
def crc32c(data: Any, by_tables: bool = False) -> int: ...
def decode_records(
    parts: Sequence[Any],
    last_deltas: Sequence[int],
    counts: Sequence[int],
    base_offsets: Sequence[int],
    base_times: Sequence[int],
    append_times: Sequence[int | None],
) -> tuple[Memory, Memory, _Binary, _Binary, list[tuple[int, int, int, int, int]], int, int] | None: ...
def encode_records(
    front: int,
    offsets: Any,
    times: Any,
    keys: tuple[Any, ...],
    values: tuple[Any, ...],
    headers: Sequence[bytes] | None,
) -> bytearray: ...
def plain_batches(
    data: Any,
    count: int,
    places: tuple[tuple[int, int], ...],
    base_offset: int,
    first_row: int,
    batch_bytes: int,
    is_append_time: bool = False,
) -> list[bytearray] | None: ...

_ProducedBatch = tuple[int, int, int, int, int, int, int, int | None, int, int, int]

def produce_request(frame: Any) -> tuple[int, int, int, list[tuple[str, list[_ProducedBatch]]]] | None: ...
def sent_batch(batch: Any, base_offset: int) -> bytearray | None: ...
