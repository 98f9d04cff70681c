"""Sessions of Fetch: what a client that has one is told is what it would be told without one; and who has none."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sparklog.gateway
from sparklog import Admin, NewTopic, Producer
from sparklog.gateway import fetch_sessions
from sparklog.gateway.error_codes import ErrorCode
from sparklog.gateway.fetch_sessions import FetchSessions, SessionFetch
from sparklog.gateway.users import Rules
from sparklog.log.cluster import open_cluster
from tests.depth import by_depth
from tests.gateway.test_server import Wire, batch, fetched, fetching, produce, values

UNKNOWN, WRONG_EPOCH, WRONG_NAMES = 70, 71, 106
OLD_MS = 120_001.0


def request(*partitions, session=0, epoch=0, forgotten=()):
    """A request of Fetch. Partitions are topic, number, offset; those that go topic and number."""
    topics = [
        {"topic": topic, "partitions": [{"partition": number, "fetch_offset": offset, "partition_max_bytes": 100}]}
        for topic, number, offset in partitions
    ]
    going = [{"topic": topic, "partitions": [number]} for topic, number in forgotten]
    return {"session_id": session, "session_epoch": epoch, "topics": topics, "forgotten_topics_data": going}


def told(number, *, high=5, low=0, code=0, records=()):
    return {
        "partition_index": number,
        "error_code": code,
        "high_watermark": high,
        "log_start_offset": low,
        "records": list(records),
    }


def answers(begun, facts=None):
    """An answer for every partition that is looked at; ``facts``: by topic and number, what isn't as usual."""
    return [
        {
            "topic": topic["topic"],
            "partitions": [
                told(one["partition"], **(facts or {}).get((topic["topic"], one["partition"]), {}))
                for one in topic["partitions"]
            ],
        }
        for topic in begun.topics
    ]


class Client:
    """A client with a session."""

    def __init__(self, sessions, *partitions, now_ms=0.0, rules=None, version=12):
        self.sessions, self.now_ms, self.rules, self.version = sessions, now_ms, rules, version
        self.id, self.epoch = 0, 0
        self.ask(*partitions)

    def begin(self, *partitions, forgotten=()):
        body = request(*partitions, session=self.id, epoch=self.epoch, forgotten=forgotten)
        return self.sessions.begin(body, self.version, self.rules, self.now_ms)

    def ask(self, *partitions, forgotten=(), facts=None):
        """The partitions that are answered, or the error."""
        begun = self.begin(*partitions, forgotten=forgotten)
        if isinstance(begun, ErrorCode):
            return begun
        self.looked_at = [(topic["topic"], one["partition"]) for topic in begun.topics for one in topic["partitions"]]
        found = begun.answer(answers(begun, facts), self.now_ms)
        self.id, self.epoch = found["session_id"], self.epoch + 1
        return [(topic["topic"], one["partition_index"]) for topic in found["responses"] for one in topic["partitions"]]


def test_an_answer_holds_only_partitions_of_which_there_is_news():
    client = Client(FetchSessions(10), ("a", 0, 5), ("a", 1, 5), ("b", 0, 5))
    assert client.id > 0
    assert client.ask() == []
    assert client.looked_at == [("a", 0), ("a", 1), ("b", 0)]
    assert client.ask(facts={("a", 1): {"records": [b"r"], "high": 6}}) == [("a", 1)]
    # the end is another one than the client was told
    assert client.ask() == [("a", 1)]
    assert client.ask(facts={("b", 0): {"low": 1}}) == [("b", 0)]
    assert client.ask(facts={("b", 0): {"low": 1}}) == []


def test_an_error_is_told_each_time_and_so_is_its_end():
    client = Client(FetchSessions(10), ("a", 0, 5), ("a", 1, 5))
    broken = {("a", 0): {"code": 3, "high": -1, "low": -1}}
    assert client.ask(facts=broken) == [("a", 0)]
    assert client.ask(facts=broken) == [("a", 0)]
    assert client.ask() == [("a", 0)]
    assert client.ask() == []
    # the end that was told with the error is the one from before
    assert client.ask(facts={("a", 0): {"code": 3}}) == [("a", 0)]
    assert client.ask() == [("a", 0)]


def test_partitions_come_change_and_go():
    sessions = FetchSessions(10)
    client = Client(sessions, ("a", 0, 5))
    assert client.ask(("b", 1, 7)) == [("b", 1)]
    begun = client.begin(("a", 0, 6), forgotten=[("b", 1), ("nothing", 3)])
    assert begun.topics == [
        {"topic": "a", "partitions": [{"partition": 0, "fetch_offset": 6, "partition_max_bytes": 100}]}
    ]
    assert sessions.partition_count == 1


def test_a_session_without_partitions_ends():
    sessions = FetchSessions(10)
    client = Client(sessions, ("a", 0, 5))
    begun = client.begin(forgotten=[("a", 0)])
    assert begun.answer([], 0.0) == {"session_id": 0, "responses": []}
    assert (len(sessions), sessions.partition_count) == (0, 0)


def test_partitions_with_records_have_their_turn_last_next_time():
    client = Client(FetchSessions(10), ("a", 0, 5), ("a", 1, 5), ("b", 0, 5))
    client.ask(facts={("a", 0): {"records": [b"r"]}})
    client.ask()
    assert client.looked_at == [("b", 0), ("a", 1), ("a", 0)]


def test_who_names_an_unknown_session_or_another_epoch_names_all_partitions_again():
    sessions = FetchSessions(10)
    client = Client(sessions, ("a", 0, 5))
    client.id += 1
    assert client.ask() == UNKNOWN
    client.id -= 1
    for epoch in (2, 7, -2):
        client.epoch = epoch
        assert client.ask() == WRONG_EPOCH
    client.epoch = 1
    assert client.ask() == []
    assert FetchSessions(10).begin(request(session=client.id, epoch=1), 12, None, 0.0) == UNKNOWN  # another gateway


def test_an_answer_that_came_too_late_is_none():
    client = Client(FetchSessions(10), ("a", 0, 5))
    first = client.begin()
    client.epoch += 1
    second = client.begin(("b", 0, 1), forgotten=[("a", 0)])
    late = first.answer(answers(first), 0.0)
    assert (late["error_code"], late["session_id"], late["responses"]) == (WRONG_EPOCH, client.id, [])
    assert second.answer(answers(second), 0.0)["session_id"] == client.id


def test_a_session_has_names_or_ids():
    sessions = FetchSessions(10)
    client = Client(sessions, ("a", 0, 5))
    client.version = 13
    assert client.ask() == WRONG_NAMES
    assert sessions.begin(request(session=client.id, epoch=1), 12, None, 0.0) is not WRONG_NAMES


@pytest.mark.parametrize("epoch", [0, -1])
def test_naming_all_partitions_ends_the_session_before(epoch):
    sessions = FetchSessions(10)
    client = Client(sessions, ("a", 0, 5))
    begun = sessions.begin(request(("a", 0, 5), session=client.id, epoch=epoch), 12, None, 0.0)
    assert isinstance(begun, SessionFetch)
    assert (len(sessions), sessions.partition_count) == (0, 0)
    assert bool(begun.answer(answers(begun), 0.0)["session_id"]) == (epoch == 0)


def test_who_has_other_rights_has_no_part_in_a_session():
    sessions = FetchSessions(10)
    ann = Client(sessions, ("a", 0, 5), rules=Rules(read=("*",)))
    for eve in (Rules(), None):
        assert sessions.begin(request(session=ann.id, epoch=1), 12, eve, 0.0) == UNKNOWN
        sessions.begin(request(session=ann.id, epoch=0), 12, eve, 0.0)
        sessions.begin(request(session=ann.id, epoch=-1), 12, eve, 0.0)
    assert ann.ask() == []


def test_epochs_go_on_behind_the_greatest():
    sessions = FetchSessions(10)
    client = Client(sessions, ("a", 0, 5))
    sessions._sessions[client.id].epoch = client.epoch = 2**31 - 1
    assert client.ask() == []
    client.epoch = 1
    assert client.ask() == []


def test_there_is_a_bound_of_sessions():
    sessions = FetchSessions(2)
    first, second = Client(sessions, ("a", 0, 5)), Client(sessions, ("a", 0, 5))
    third = Client(sessions, ("a", 0, 5), ("a", 1, 5), ("a", 2, 5), now_ms=119_999.0)
    assert third.id == 0  # all others are young
    assert (first.ask(), second.ask()) == ([], [])
    assert Client(FetchSessions(0), ("a", 0, 5)).id == 0


def test_a_session_that_is_not_used_makes_room():
    sessions = FetchSessions(2)
    first, second = Client(sessions, ("a", 0, 5)), Client(sessions, ("a", 0, 5))
    first.now_ms = 100.0
    assert first.ask() == []
    third = Client(sessions, ("a", 0, 5), now_ms=OLD_MS)
    assert third.id > 0
    assert (first.ask(), second.ask()) == ([], UNKNOWN)
    assert sessions.evicted_count == 1


def test_a_small_session_makes_room_for_a_larger_one_once_it_is_old():
    sessions = FetchSessions(2)
    small, large = Client(sessions, ("a", 0, 5)), Client(sessions, ("a", 0, 5), ("a", 1, 5))
    small.now_ms = large.now_ms = OLD_MS - 1
    assert (small.ask(), large.ask()) == ([], [])  # both are in use
    assert Client(sessions, ("a", 0, 5), now_ms=OLD_MS + 1).id == 0
    third = Client(sessions, ("a", 0, 5), ("a", 1, 5), now_ms=OLD_MS + 1)
    assert third.id > 0
    assert (small.ask(), large.ask()) == (UNKNOWN, [])
    assert sessions.partition_count == 4


def test_there_is_a_bound_of_partitions(monkeypatch):
    monkeypatch.setattr(fetch_sessions, "_MOST_PARTITIONS", 3)
    sessions = FetchSessions(10)
    client = Client(sessions, ("a", 0, 5), ("a", 1, 5))
    assert Client(sessions, ("a", 0, 5), ("a", 1, 5)).id == 0
    assert Client(sessions, *[("a", number, 5) for number in range(4)], now_ms=OLD_MS).id == 0
    assert client.ask(("a", 2, 5)) == [("a", 2)]
    assert client.ask(("a", 3, 5)) == UNKNOWN
    assert (len(sessions), sessions.partition_count, sessions.evicted_count) == (0, 0, 0)


KEYS = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 2))
FACTS = st.fixed_dictionaries(
    {
        "high": st.integers(5, 7),
        "low": st.integers(0, 1),
        "code": st.sampled_from([0, 0, 0, 3]),
        "records": st.sampled_from([[], [], [b"r"]]),
    }
)
STEPS = st.tuples(
    st.dictionaries(KEYS, st.integers(0, 9), max_size=3),
    st.lists(KEYS, max_size=2, unique=True),
    st.dictionaries(KEYS, FACTS, max_size=4),
)


@settings(max_examples=by_depth(gate=50, nightly=100), deadline=None)
@given(st.lists(STEPS, min_size=1, max_size=12))
def test_a_client_knows_what_it_would_know_without_a_session(steps):
    """After each answer: the positions that are looked at, and of each partition its end, its start and its error."""
    sessions = FetchSessions(10)
    positions: dict[tuple[str, int], int] = {}
    known: dict[tuple[str, int], tuple[int, int, int]] = {}
    session = epoch = 0
    for changed, forgotten, facts in steps:
        gone = [key for key in forgotten if key not in changed]
        positions = {key: at for key, at in {**positions, **changed}.items() if key not in gone}
        known = {key: one for key, one in known.items() if key in positions}
        named = changed if session else positions
        partitions = [(*key, at) for key, at in named.items()]
        begun = sessions.begin(request(*partitions, session=session, epoch=epoch, forgotten=gone), 12, None, 0.0)
        assert isinstance(begun, SessionFetch)
        looked_at = {
            (topic["topic"], one["partition"]): one["fetch_offset"]
            for topic in begun.topics
            for one in topic["partitions"]
        }
        assert looked_at == positions
        found = begun.answer(answers(begun, facts), 0.0)
        for topic in found["responses"]:
            for one in topic["partitions"]:
                key = topic["topic"], one["partition_index"]
                known[key] = one["high_watermark"], one["log_start_offset"], one["error_code"]
        assert known == {
            key: (one["high_watermark"], one["log_start_offset"], one["error_code"])
            for key in positions
            for one in [told(key[1], **facts.get(key, {}))]
        }
        session, epoch = found["session_id"], epoch + 1 if found["session_id"] else 0
        assert sessions.partition_count == (len(positions) if session else 0)


def sessioned(body, session, epoch, forgotten=()):
    return {**body, "session_id": session, "session_epoch": epoch, "forgotten_topics_data": list(forgotten)}


@pytest.mark.parametrize("by_id", [False, True], ids=["by name", "by id"])
def test_a_session_by_the_wire(by_id):
    cluster = open_cluster(f"memory://sessions-{uuid.uuid4().hex}")
    admin = Admin(cluster)
    admin.create_topics([NewTopic("jobs", 2)])
    (topic,) = admin.describe_topics()
    version = 16 if by_id else 12
    by = {"topic_id": uuid.UUID(topic.topic_id)} if by_id else {}
    nothing = {**fetching(0), "topics": []}
    with sparklog.gateway.serve(cluster) as servers:
        client = Wire(servers)
        client.call("Produce", 9, produce(batch(b"a", b"b")))
        both = fetching(0, **by)
        both["topics"][0]["partitions"] += fetching(0, partition=1)["topics"][0]["partitions"]
        first = client.call("Fetch", version, sessioned(both, 0, 0))
        session = first["session_id"]
        assert session > 0
        assert values(fetched(first)["records"]) == [b"a", b"b"]
        assert len(first["responses"][0]["partitions"]) == 2
        moved = client.call("Fetch", version, sessioned(fetching(2, **by), session, 1))
        assert (moved["error_code"], moved["session_id"], moved["responses"]) == (0, session, [])
        with Producer(cluster) as producer:
            producer.send("jobs", b"c", partition=0).get(60)
        news = client.call("Fetch", version, sessioned(nothing, session, 2))
        assert values(fetched(news)["records"]) == [b"c"]
        assert [one["partition_index"] for one in news["responses"][0]["partitions"]] == [0]
        again = client.call("Fetch", version, sessioned(nothing, session, 2))
        assert (again["error_code"], again["session_id"]) == (WRONG_EPOCH, 0)
        other = client.call("Fetch", 12 if by_id else 13, sessioned(nothing, session, 3))
        assert other["error_code"] == WRONG_NAMES
        admin.delete_topics(["jobs"])
        gone = client.call("Fetch", version, sessioned(nothing, session, 3))
        assert {one["error_code"] for one in gone["responses"][0]["partitions"]} == {100 if by_id else 3}
        client.close()
    with sparklog.gateway.serve(cluster) as servers:
        client = Wire(servers)
        assert client.call("Fetch", version, sessioned(nothing, session, 4))["error_code"] == UNKNOWN
        client.close()


def test_a_session_outlives_its_connection():
    """A client whose connection broke goes on where it was; one that doesn't know what was answered begins anew."""
    cluster = open_cluster(f"memory://sessions-{uuid.uuid4().hex}")
    Admin(cluster).create_topics([NewTopic("jobs", 1)])
    nothing = {**fetching(0), "topics": []}
    with sparklog.gateway.serve(cluster) as servers:
        client = Wire(servers)
        session = client.call("Fetch", 12, sessioned(fetching(0), 0, 0))["session_id"]
        client.close()
        client = Wire(servers)
        client.call("Produce", 9, produce(batch(b"a")))
        assert values(fetched(client.call("Fetch", 12, sessioned(nothing, session, 1)))["records"]) == [b"a"]
        anew = client.call("Fetch", 12, sessioned(fetching(0), session, 0))
        assert values(fetched(anew)["records"]) == [b"a"]
        assert anew["session_id"] not in (0, session)
        assert client.call("Fetch", 12, sessioned(nothing, session, 2))["error_code"] == UNKNOWN
        client.close()
