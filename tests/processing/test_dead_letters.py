"""Dead letters: what lies there, and sending it again, each once."""

from __future__ import annotations

import gc
import random
import threading
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from sparklog import Admin, Consumer, NewTopic, Producer
from sparklog.errors import (
    CorruptRecordError,
    InvalidArgumentError,
    InvalidRecordError,
    ProducerFencedError,
    SparklogError,
    UnknownTopicOrPartitionError,
)
from sparklog.log import Cluster
from sparklog.model import ConsumerRecord, OffsetAndMetadata, TopicPartition
from sparklog.processing import Record, Send, dead_letters
from sparklog.processing.dead_letters import Found, Wanted, dead_letter_topics, letters_of, purge, replay
from sparklog.processing.moves import Origin, bury, pointer_only
from sparklog.processing.replay_store import POSITION_TOPIC
from sparklog.storage import MemoryStore
from sparklog.testing import FaultyStore, SimulatedCrash, crashes
from tests.consumer.support import a_cluster
from tests.depth import WALK, by_depth, each_nth
from tests.processing.support import a_letter, a_world, an_app, done, outputs, records, running, texts, wait_for


def letters(count: int, store: MemoryStore | None = None) -> Cluster:
    cluster = a_world("orders", "other", "dlq.orders", partitions=2, store=store)
    outputs(cluster, *(a_letter(number, partition=number % 2) for number in range(count)))
    return cluster


def odd(found: list[Found]) -> list[Found]:
    return [each for each in found if each.letter.exception == "ValueError"]


def thirds(found: list[Found]) -> list[Found]:
    return [each for each in found if int(each.letter.value or b"") % 3 == 1]


def eighths(found: list[Found]) -> list[Found]:
    return [each for each in found if each.letter.value == b"8"]


def a_share(chance: random.Random, share: float) -> Wanted:
    return lambda found: [each for each in found if chance.random() < share]


def sent(cluster: Cluster, topic: str = "orders") -> list[int]:
    return sorted(map(int, texts(cluster, topic)))


def listed(cluster: Cluster) -> tuple[int, int]:
    with Admin(cluster) as admin:
        [found] = dead_letter_topics(admin)
    return found.letters, found.not_replayed


def test_a_letter_says_where_it_came_from_and_why():
    cluster = letters(2)
    [[first], [second]] = letters_of(cluster, "dlq.orders")
    assert first.letter.origin == Origin(topic="orders", partition=0, offset=0, timestamp=5)
    assert (second.letter.exception, second.letter.message, second.letter.attempts) == ("ValueError", "odd", 3)
    assert (second.letter.key, second.letter.value, second.letter.headers) == (b"k", b"1", [("mine", b"1")])


def test_a_dry_run_changes_nothing():
    cluster = letters(10)
    planned = replay(cluster, "dlq.orders")
    assert (planned.to, planned.done, len(planned.found)) == ({"orders": 10}, False, 10)
    assert sent(cluster) == []
    assert listed(cluster) == (10, 10)


@pytest.mark.slow
def test_each_letter_is_replayed_once_however_often_it_is_asked_for():
    cluster = letters(10)
    assert replay(cluster, "dlq.orders", execute=True).to == {"orders": 10}
    assert replay(cluster, "dlq.orders", execute=True).to == {}
    assert sent(cluster) == list(range(10))
    assert listed(cluster) == (10, 0)
    replayed = records(cluster, "orders")[0]
    assert [name for name, _ in replayed.headers] == [
        "mine",
        "__dlq.replayed.topic",
        "__dlq.replayed.partition",
        "__dlq.replayed.offset",
    ]
    outputs(cluster, a_letter(11))
    assert replay(cluster, "dlq.orders", execute=True).to == {"orders": 1}


@pytest.mark.slow
def test_a_replay_of_some_leaves_the_others_to_a_later_one():
    cluster = letters(10)
    assert replay(cluster, "dlq.orders", to="other", wanted=odd, most=3, execute=True).to == {"other": 3}
    assert listed(cluster) == (10, 7)
    assert replay(cluster, "dlq.orders", to="other", wanted=odd, execute=True).to == {"other": 2}
    assert replay(cluster, "dlq.orders", to="other", wanted=odd, execute=True).to == {}
    assert sent(cluster, "other") == [1, 3, 5, 7, 9]
    assert [each.letter.value for piece in letters_of(cluster, "dlq.orders") for each in piece] == [
        b"0",
        b"2",
        b"4",
        b"6",
        b"8",
    ]
    assert replay(cluster, "dlq.orders", execute=True).to == {"orders": 5}
    assert sent(cluster) == [0, 2, 4, 6, 8]


@pytest.mark.slow
def test_scattered_selections_of_any_number_are_replayed_once():
    """✗ The ranges (5,200 bytes for each partition) don't fit into the metadata of the group's offset (4,096), and the
    replay is refused."""
    cluster = letters(3_600)
    assert replay(cluster, "dlq.orders", wanted=thirds, execute=True).to == {"orders": 1_200}
    assert replay(cluster, "dlq.orders", wanted=thirds, execute=True).to == {}
    assert listed(cluster) == (3_600, 2_400)
    assert replay(cluster, "dlq.orders", most=700, execute=True).to == {"orders": 700}
    assert replay(cluster, "dlq.orders", execute=True).to == {"orders": 1_700}
    assert sent(cluster) == list(range(3_600))
    assert listed(cluster) == (3_600, 0)


@pytest.mark.slow
def test_selections_that_cross_the_ends_of_polls_are_replayed_once(monkeypatch):
    """✗ What was replayed beyond the end of a poll is forgotten by the next replay, and sent again."""
    chance = random.Random(WALK)
    for _ in range(by_depth(gate=3, nightly=30)):
        cluster = letters(60)
        for _ in range(4):
            monkeypatch.setattr(dead_letters, "_RECORDS_A_TRANSACTION", chance.randrange(1, 21))
            share = chance.random()
            most = chance.choice([None, 7])
            replay(cluster, "dlq.orders", wanted=a_share(chance, share), most=most, execute=True)
        replay(cluster, "dlq.orders", execute=True)
        assert sent(cluster) == list(range(60))


def test_what_was_replayed_is_known_when_the_groups_offsets_have_expired():
    """Offsets of a group without members expire after a week, and it may be deleted. ✗ All is sent again."""
    cluster = letters(10)
    replay(cluster, "dlq.orders", wanted=odd, most=3, execute=True)
    with Admin(cluster) as admin:
        admin.delete_groups([dead_letters.REPLAY_GROUP])
    assert listed(cluster) == (10, 7)
    assert replay(cluster, "dlq.orders", execute=True).to == {"orders": 7}
    assert sent(cluster) == list(range(10))


def test_positions_that_an_earlier_version_has_committed_go_on():
    """Of the letters 0, 2, … in partition 0 the offsets 0, 1 and 3 were replayed."""
    cluster = letters(10)
    with Admin(cluster) as admin:
        at = TopicPartition("dlq.orders", 0)
        admin.alter_group_offsets(dead_letters.REPLAY_GROUP, {at: OffsetAndMetadata(2, "replayed:3-3")})
    assert listed(cluster) == (10, 7)
    assert replay(cluster, "dlq.orders", wanted=eighths, execute=True).to == {"orders": 1}
    with Admin(cluster) as admin:
        metadata = admin.list_group_offsets(dead_letters.REPLAY_GROUP)[at].metadata
        assert "replayed-letters" in metadata  # an earlier version refuses it
        admin.delete_groups([dead_letters.REPLAY_GROUP])
    assert replay(cluster, "dlq.orders", execute=True).to == {"orders": 6}
    assert sent(cluster) == [1, 3, 4, 5, 7, 8, 9]


def test_a_replay_whose_position_is_lost_is_refused():
    cluster = letters(10)
    replay(cluster, "dlq.orders", wanted=thirds, execute=True)
    with Admin(cluster) as admin:
        admin.delete_topics([POSITION_TOPIC])
    for execute in (False, True):
        with pytest.raises(CorruptRecordError, match=r"replayed isn't known: group 'dlq-replay' .* 'replayed-letters'"):
            replay(cluster, "dlq.orders", execute=execute)
    assert replay(cluster, "dlq.orders", group="anew", execute=True).to == {"orders": 10}


def test_what_others_send_to_the_topic_of_positions_is_passed_over():
    cluster = letters(6)
    replay(cluster, "dlq.orders", wanted=odd, execute=True)
    with Producer(cluster) as producer:
        for key in (
            b"after",
            b"{}",
            b"[]",
            b'{"group":"dlq-replay"}',
            b'{"group":"dlq-replay","topic_id":1,"partition":"x"}',
        ):
            producer.send(POSITION_TOPIC, b"after", key)
    assert replay(cluster, "dlq.orders", execute=True).to == {"orders": 3}


def test_a_dead_letter_topic_that_was_made_again_has_no_letter_replayed():
    cluster = letters(6)
    replay(cluster, "dlq.orders", execute=True)
    with Admin(cluster) as admin:
        admin.delete_topics(["dlq.orders"])
        admin.create_topics([NewTopic("dlq.orders", num_partitions=2)])
    outputs(cluster, *(a_letter(number, partition=number % 2) for number in range(6, 9)))
    assert replay(cluster, "dlq.orders", execute=True).to == {"orders": 3}
    assert sent(cluster) == list(range(9))


def test_groups_know_each_for_itself_what_was_replayed():
    cluster = letters(4)
    assert replay(cluster, "dlq.orders", wanted=odd, execute=True).to == {"orders": 2}
    assert replay(cluster, "dlq.orders", to="other", group="audit", execute=True).to == {"other": 4}
    assert replay(cluster, "dlq.orders", execute=True).to == {"orders": 2}


def test_letters_without_their_value_are_refused():
    cluster = letters(1)
    record = ConsumerRecord("orders", 0, -1, 3, 5, 0, None, b"x", [], None, -1, 1, -1)
    origin = Origin(topic="orders", partition=0, offset=3, timestamp=5)
    letter = bury(record, "dlq.orders", origin=origin, group_id="g", attempts=1, error=ValueError())[1]
    outputs(cluster, pointer_only(letter)[0])
    with pytest.raises(InvalidArgumentError, match=r"offset 1, is without its value, .* offset=3"):
        replay(cluster, "dlq.orders", execute=True)
    assert sent(cluster) == []


def test_a_letter_that_its_topic_refuses_is_named():
    cluster = letters(4)
    with Admin(cluster) as admin:
        admin.create_topics([NewTopic("typed", value_schema=pa.schema([("id", pa.int64())]))])
    with pytest.raises(InvalidRecordError, match=r"dead letter dlq.orders-0, offset 0, can't be sent to topic 'typed'"):
        replay(cluster, "dlq.orders", to="typed", execute=True)
    assert listed(cluster) == (4, 4)
    assert replay(cluster, "dlq.orders", execute=True).to == {"orders": 4}


def large(cluster: Cluster, *topics: str) -> None:
    with Admin(cluster) as admin:
        admin.alter_configs({topic: {"max.message.bytes": 60_000_000} for topic in topics})


def test_letters_larger_than_a_producers_limits_are_replayed():
    """✗ The producer of the replay refuses what the topic takes."""
    cluster = a_world("orders", "dlq.orders")
    large(cluster, "orders", "dlq.orders")
    with Producer(cluster, max_request_size=50_000_000, buffer_memory=100_000_000) as producer:
        producer.send("dlq.orders", b"x" * 40_000_000, headers=[("__dlq.errors.topic", b"orders")])
    assert replay(cluster, "dlq.orders", execute=True).to == {"orders": 1}
    with Admin(cluster) as admin:
        admin.alter_configs({"orders": {"max.message.bytes": 1_000_000}})
    with pytest.raises(
        InvalidRecordError, match=r"dead letter dlq.orders-0, offset 0, can't be sent to topic 'orders'"
    ):
        replay(cluster, "dlq.orders", group="again", execute=True)


@pytest.mark.parametrize("kind", ["consumer", "share"])
def test_a_letter_has_its_value_wherever_its_topic_takes_it(kind):
    """✗ It is left out, as too large for the worker's producer."""
    cluster = a_world("orders", "dlq.orders")
    large(cluster, "orders", "dlq.orders")
    with Producer(cluster, max_request_size=50_000_000, buffer_memory=100_000_000) as producer:
        producer.send("orders", b"x" * 40_000_000)
    app = an_app(cluster, group_type=kind, **({"consumer": {}} if kind == "share" else {}))

    @app.subscriber("orders", dead_letter=True)
    def handle(record: Record[bytes]) -> None:
        raise ValueError("odd")

    with running(app):
        done(app, 1)
    [letter] = records(cluster, "dlq.orders")
    assert len(letter.value or b"") == 40_000_000


def test_letters_without_keys_cost_no_look_each():
    """✗ Each looks at its topic: on a slow store the transaction's time is over before they are sent."""
    store = FaultyStore(MemoryStore())
    cluster = a_world("orders", "dlq.orders", store=store)
    outputs(cluster, *(a_letter(number, key=None) for number in range(300)))
    before = len(store.calls)
    assert replay(cluster, "dlq.orders", execute=True).to == {"orders": 300}
    assert len(store.calls) - before < 200


def test_a_dead_letter_topic_that_is_made_again_meanwhile_is_refused():
    """✗ Its letters are sent in the name of the topic before, and again by the next replay."""
    cluster = letters(6)

    def made_again(found: list[Found]) -> list[Found]:
        with Admin(cluster) as admin:
            admin.delete_topics(["dlq.orders"])
            admin.create_topics([NewTopic("dlq.orders", num_partitions=2)])
        outputs(cluster, *(a_letter(number, partition=1) for number in range(6, 9)))
        return []

    with pytest.raises(UnknownTopicOrPartitionError, match=r"dlq\.orders"):
        replay(cluster, "dlq.orders", wanted=made_again, execute=True)
    assert replay(cluster, "dlq.orders", execute=True).to == {"orders": 3}
    assert sent(cluster) == [6, 7, 8]


def test_partitions_that_are_added_meanwhile_are_left_to_the_next_replay():
    """✗ The replay ends with KeyError."""
    cluster = letters(6)
    position_of = dead_letters._positions_in

    def with_more(*given: Any) -> Any:
        found = position_of(*given)
        with Admin(cluster) as admin:
            admin.create_partitions({"dlq.orders": 3})
        outputs(cluster, a_letter(6, partition=2))
        return found

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(dead_letters, "_positions_in", with_more)
        assert replay(cluster, "dlq.orders", execute=True).to == {"orders": 6}
    assert replay(cluster, "dlq.orders", execute=True).to == {"orders": 1}


def test_letters_that_say_no_origin_are_sent_where_they_are_told():
    """✗ They are sent to their own topic, as further letters, with each replay."""
    cluster = a_world("orders", "dlq.orders")
    with Producer(cluster) as producer:
        producer.send("dlq.orders", b"7")
    for execute in (False, True):
        with pytest.raises(
            InvalidArgumentError, match=r"dlq\.orders-0, offset 0, doesn't say where it came from: .*--to"
        ):
            replay(cluster, "dlq.orders", execute=execute)
    assert replay(cluster, "dlq.orders", to="orders", execute=True).to == {"orders": 1}


def test_names_may_be_as_long_as_names_may_be():
    """✗ Together they are too long for a transactional id: a worker ends at its first output, no letter is replayed."""
    group, letters_topic = "g" * 195, "dlq." + "t" * 190
    cluster = a_world("in", "out", letters_topic)
    with Producer(cluster) as producer:
        producer.send("in", b"1")
        producer.send("in", b"bad")
    app = an_app(cluster, group_id=group)

    @app.subscriber("in", dead_letter=letters_topic)
    def handle(record: Record[int]) -> Send:
        return Send("out", record.value)

    with running(app):
        done(app, 2)
    assert texts(cluster, "out") == ["1"]
    for sent_now in (1, 0):
        found = replay(cluster, letters_topic, to="out", group=group, execute=True).found
        assert len(found) == sent_now


def test_topics_that_cant_be_are_refused():
    cluster = letters(1)
    with pytest.raises(InvalidArgumentError, match=r"to='dlq.orders' is the dead-letter topic itself"):
        replay(cluster, "dlq.orders", to="dlq.orders")
    with pytest.raises(UnknownTopicOrPartitionError, match=r"dlq\.none"):
        replay(cluster, "dlq.none")
    with pytest.raises(UnknownTopicOrPartitionError, match="missing"):
        replay(cluster, "dlq.orders", to="missing", execute=True)
    assert listed(cluster) == (1, 1)


def test_of_two_replays_at_a_time_one_is_fenced_off():
    cluster = letters(10)
    second_ran = list[bool]()

    def while_it_chooses(found: list[Found]) -> list[Found]:
        if not second_ran:
            second_ran.append(True)
            replay(cluster, "dlq.orders", execute=True)
        return found

    with pytest.raises(
        ProducerFencedError, match=r"another replay of 'dlq\.orders' in the name of 'dlq-replay' has begun"
    ):
        replay(cluster, "dlq.orders", wanted=while_it_chooses, execute=True)
    assert sent(cluster) == list(range(10))


def test_purged_letters_are_gone():
    cluster = letters(10)
    replay(cluster, "dlq.orders", most=3, execute=True)
    with Admin(cluster) as admin:
        assert purge(admin, "dlq.orders", replayed=True) == 3
        assert listed(cluster) == (10, 7)
        assert purge(admin, "dlq.orders", replayed=True, execute=True) == 3
        assert listed(cluster) == (7, 7)
        assert purge(admin, "dlq.orders", execute=True) == 7
        assert purge(admin, "dlq.orders", execute=True) == 0
    assert listed(cluster) == (0, 0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_replay_that_is_killed_at_any_call_is_finished_by_the_next(monkeypatch):
    monkeypatch.setattr(dead_letters, "Consumer", MortalConsumer)
    monkeypatch.setattr(dead_letters, "_RECORDS_A_TRANSACTION", 2)
    for fault in each_nth(crashes(120), 24):
        store = MemoryStore()
        cluster = letters(6, store)
        faulty = FaultyStore(store, fault)
        first = KilledReplay(faulty)
        first.start()
        wait_for(partial(is_dead, faulty, first))
        replay(cluster, "dlq.orders", wanted=odd, execute=True)
        replay(cluster, "dlq.orders", execute=True)
        assert Counter(sent(cluster)) == Counter(range(6))
    gc.collect()  # clients that died unclosed warn here, not in the next test


def is_dead(faulty: FaultyStore, thread: threading.Thread) -> bool:
    return faulty.crashed or not thread.is_alive()


class KilledReplay(threading.Thread):
    """A replay in a process that dies."""

    def __init__(self, faulty: FaultyStore) -> None:
        super().__init__(daemon=True)
        self.faulty = faulty

    def run(self) -> None:
        with suppress(SimulatedCrash, SparklogError):
            replay(a_cluster(self.faulty, retry_ms=100), "dlq.orders", wanted=odd, execute=True)


class MortalConsumer(Consumer):
    """Ends with its process: it would poll for ever where the thread that reads for it has died alone."""

    def poll(self, *args: Any, **given: Any) -> Any:
        thread = threading.current_thread()
        if isinstance(thread, KilledReplay) and thread.faulty.crashed:
            raise SimulatedCrash("poll: the process has crashed")
        return super().poll(*args, **given)


def test_letters_of_a_topic_that_was_made_anew_meanwhile_are_not_purged(monkeypatch):
    cluster = letters(10)
    with Admin(cluster) as admin:
        open_cluster = Admin.open_cluster

        def open_slowly(self: Admin) -> Cluster:
            monkeypatch.undo()
            admin.delete_topics(["dlq.orders"])
            admin.create_topics([NewTopic("dlq.orders", 2)])
            outputs(cluster, *(a_letter(number, partition=number % 2) for number in range(20, 26)))
            return open_cluster(self)

        monkeypatch.setattr(Admin, "open_cluster", open_slowly)
        with pytest.raises(UnknownTopicOrPartitionError, match=r"'dlq\.orders' with id \w+ was created again"):
            purge(admin, "dlq.orders", execute=True)
    assert listed(cluster) == (6, 6)
