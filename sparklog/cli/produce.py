"""``sparklog produce``: lines of standard input or of files into a topic."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Mapping
from typing import IO, TYPE_CHECKING, Any

import click

from sparklog.cli.lines import InputRecord, JsonLines, TextLines, numbered_lines
from sparklog.cli.options import complete_topics, connection_options, pairs, root_of
from sparklog.cli.progress import Advance, reading_progress
from sparklog.cli.signals import FAILED, TERMINATED, Ending, Terminated, ended_by_signals
from sparklog.errors import KafkaTimeoutError, SparklogError
from sparklog.model import Headers

if TYPE_CHECKING:
    from sparklog.producer import FutureRecordMetadata, Producer

__all__ = ["produce"]


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, allow_dash=True), metavar="[FILE]…")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="The format of a line: a value, or a JSON object as `sparklog consume --json` prints it.",
)
@click.option("--key-separator", "-K", metavar="TEXT", help="Each line of text is key, TEXT, value.")
@click.option("--key", "-k", help="The key of records for which the input has none.")
@click.option("--null-marker", "-Z", metavar="TEXT", help="The text that means a null key or value (a tombstone).")
@click.option(
    "--header", "-H", "headers", multiple=True, metavar="KEY=VALUE", help="A header of every record. Repeatable."
)
@click.option(
    "--partition", "-p", type=click.IntRange(min=0), help="The partition, instead of the one that the key chooses."
)
@click.option("--acks", type=click.Choice(["0", "1", "all"]), help="[default: all]")
@click.option("--compression", "-z", type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]))
@click.option("--linger-ms", type=click.IntRange(min=0), help="How long records wait for others.")
@click.option(
    "--batch-size",
    type=click.IntRange(min=0),
    metavar="BYTES",
    help="Once this many bytes are gathered, they are sent without waiting.",
)
@click.option(
    "--transactional-id",
    metavar="ID",
    help="All lines in one transaction: all are stored, or none. Another producer with the same ID is fenced.",
)
@click.option("--config", "-X", multiple=True, metavar="KEY=VALUE", help="Any other setting of a producer. Repeatable.")
@connection_options()
@click.pass_context
def produce(
    ctx: click.Context,
    topic: str,
    files: tuple[str, ...],
    format_: str,
    key_separator: str | None,
    key: str | None,
    null_marker: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    acks: str | None,
    compression: str | None,
    linger_ms: int | None,
    batch_size: int | None,
    transactional_id: str | None,
    config: tuple[str, ...],
) -> None:
    """Send each line of FILEs, or of standard input, to TOPIC.

    It stops at the first line that can't be sent, and prints its number and how many records were stored before: in a
    transaction, none.

    \b
      sparklog produce orders < values.txt
      sparklog produce orders -K , keyed.csv
      sparklog consume orders --from-beginning --json | sparklog produce copy --format json
    """
    _check_usage(ctx, format_, key_separator, null_marker, key)
    common: dict[str, Any] = {"key": _encoded(key), "headers": _header_list(headers), "partition": partition}
    parser = (
        JsonLines(**common)
        if format_ == "json"
        else TextLines(key_separator=_encoded(key_separator), null_marker=_encoded(null_marker), **common)
    )
    named = {
        "acks": acks,
        "compression_type": compression,
        "linger_ms": linger_ms,
        "batch_size": batch_size,
        "transactional_id": transactional_id,
    }
    settings: dict[str, Any] = {
        **pairs(config, "--config"),
        **{name: value for name, value in named.items() if value is not None},
    }
    is_transactional = "transactional_id" in {name.replace(".", "_") for name in settings}
    is_endless = not is_transactional and files in ((), ("-",))
    is_sent = _produce(ctx, topic, files, parser, settings, is_transactional=is_transactional)
    if not (is_sent or is_endless):
        ctx.exit(TERMINATED)  # what was given wasn't sent to its end, or is aborted


def _produce(
    ctx: click.Context,
    topic: str,
    files: tuple[str, ...],
    parser: TextLines | JsonLines,
    settings: Mapping[str, Any],
    *,
    is_transactional: bool,
) -> bool:
    """Send what is given. False: a signal ended it before; what was read is settled."""
    from sparklog.producer import Producer

    uri, options = root_of(ctx)
    with (
        ended_by_signals(with_interrupts=False) as ending,
        Producer(uri, storage_options=options, **settings) as producer,
    ):
        sender = (_TransactionSender if is_transactional else _Sender)(producer, topic, parser, ending)
        producer.partitions_for(topic)  # an unknown topic is an error before anything is read
        _send_files(sender, files)
        return True
    return False


def _check_usage(
    ctx: click.Context, format_: str, key_separator: str | None, null_marker: str | None, key: str | None
) -> None:
    if format_ == "json":
        for name, given in (("--key-separator", key_separator), ("--null-marker", null_marker)):
            if given is not None:
                raise click.UsageError(f"{name} has no meaning with --format json.", ctx)
    if key is not None and key_separator is not None:
        raise click.UsageError("Give --key or --key-separator, not both.", ctx)
    if key_separator == "":
        raise click.BadParameter("expected a text that isn't empty", param_hint="--key-separator")


def _send_files(sender: _Sender, files: tuple[str, ...]) -> None:
    """Send the lines of files, or of standard input; whatever happens, say how many records are stored."""
    try:
        with reading_progress(files) as advance:
            for name in files or ("-",):
                with click.open_file(name, "rb") as stream:
                    sender.send_lines("stdin" if name == "-" else name, stream, advance)
            sender.finish()
    except Terminated:
        sender.settle()
        raise
    finally:
        click.echo(sender.summary(), err=True)


class _Sender:
    """Sends lines, and finds the first that failed; remembers no more than what is under way."""

    def __init__(self, producer: Producer, topic: str, parser: TextLines | JsonLines, ending: Ending) -> None:
        self._producer = producer
        self._ending = ending
        self._topic = topic
        self._parser = parser
        self._under_way: deque[tuple[str, int, FutureRecordMetadata]] = deque()
        self._stored_count = 0

    def send_lines(self, source: str, stream: IO[bytes], advance: Advance) -> None:
        """Send every line of a stream. Raises the first error there is, naming its line."""
        for number, line in self._held(numbered_lines(stream)):
            try:
                record = self._parser.record(line)
                if record is not None:
                    self._sent(source, number, self._send(record))
            except SparklogError as error:
                raise _at(source, number, error) from None
            advance(len(line) + 1)
            while self._under_way and self._under_way[0][2].is_done:
                self._settle_first()

    def _held(self, lines: Iterator[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
        """Lines; a signal ends the wait for the next one, and not what is done with one."""
        while True:
            self._ending.release()
            line = next(lines, None)
            self._ending.hold(forced_code=FAILED)
            if line is None:
                return
            yield line

    def settle(self) -> None:
        """Wait for what was sent, where no more is read. Raises the first error there is, naming its line."""
        self.finish()

    def _sent(self, source: str, number: int, future: FutureRecordMetadata) -> None:
        self._under_way.append((source, number, future))

    def finish(self) -> None:
        """Wait for all. Raises the first error there is, naming its line."""
        self._producer.flush()
        while self._under_way:
            self._settle_first()

    def summary(self) -> str:
        """How many records are stored; waits for what is under way."""
        self._producer.flush()
        self._stored_count += sum(future.succeeded() for _, _, future in self._under_way)
        self._under_way.clear()
        return f"produced {_records(self._stored_count)} to {self._topic}"

    def _send(self, record: InputRecord) -> FutureRecordMetadata:
        key, value, headers, partition, timestamp_ms = record
        return self._producer.send(self._topic, value, key, headers, partition, timestamp_ms)

    def _settle_first(self) -> None:
        source, number, future = self._under_way.popleft()
        error = future.exception
        if error is not None:
            raise _at(source, number, error)
        self._stored_count += 1


class _TransactionSender(_Sender):
    """Sends all lines in one transaction, and so need remember none of them."""

    def __init__(self, producer: Producer, topic: str, parser: TextLines | JsonLines, ending: Ending) -> None:
        super().__init__(producer, topic, parser, ending)
        self._sent_count = 0
        self._is_settled = True
        producer.init_transactions()
        producer.begin_transaction()

    def _sent(self, source: str, number: int, future: FutureRecordMetadata) -> None:
        self._sent_count += 1

    def finish(self) -> None:
        """Commit. Where this isn't reached, closing the producer aborts."""
        try:
            self._producer.commit_transaction()
        except KafkaTimeoutError:
            self._is_settled = False
            raise
        self._stored_count = self._sent_count

    def settle(self) -> None:
        """Do nothing: closing the producer aborts."""

    def summary(self) -> str:
        """Summarise a transaction: all records are stored or none, unless its outcome is unknown."""
        if not self._is_settled:
            return f"whether {_records(self._sent_count)} will be stored in {self._topic} isn't known"
        return f"produced {_records(self._stored_count)} to {self._topic}"


def _records(count: int) -> str:
    return f"{count} {'record' if count == 1 else 'records'}"


def _at(source: str, number: int, error: SparklogError) -> SparklogError:
    error.args = (f"{source}, line {number}: {error}",)
    return error


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else os.fsencode(text)  # as it was typed, whatever the encoding


def _header_list(given: tuple[str, ...]) -> Headers | None:
    headers: Headers = []
    for text in given:
        name, equals, value = text.partition("=")
        if not name:
            raise click.BadParameter(f"got {text!r}, expected KEY=VALUE", param_hint="--header")
        headers.append((name, os.fsencode(value) if equals else None))
    return headers or None
