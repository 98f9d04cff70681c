"""Users in the cluster's store: two administrators at once, lost answers, a store that is away."""

from __future__ import annotations

import asyncio
import hashlib
import random
import uuid
from types import SimpleNamespace

import pytest

import sparklog.gateway
from sparklog.errors import (
    CommitStateUnknownError,
    CorruptLogError,
    InvalidArgumentError,
    InvalidConfigurationError,
    KafkaTimeoutError,
    SparklogError,
    StoreUnavailableError,
    UnsupportedVersionError,
)
from sparklog.gateway import authentication, stored_users, user_log
from sparklog.gateway import users as users_module
from sparklog.gateway.backend import Backend
from sparklog.gateway.client_log import ClientLog
from sparklog.gateway.error_codes import ErrorCode
from sparklog.gateway.sasl import AuthenticationError, begin_exchange
from sparklog.gateway.scram_changes import Alteration
from sparklog.gateway.settings import GatewaySettings
from sparklog.gateway.stored_users import KEPT_MS, REREAD_MS, StoredUsers
from sparklog.gateway.user_changes import added, removed, with_keys, with_rules
from sparklog.gateway.user_log import change_users, open_user_log
from sparklog.gateway.users import Rules, new_user
from sparklog.gateway.wire import WireError, message
from sparklog.log.cluster import open_cluster
from sparklog.storage import MemoryStore
from sparklog.testing import Fault, FaultKind, FaultyStore, ManualClock, SimulatedCrash
from sparklog.testing.interrupted_store import InterruptedStore
from tests.gateway.test_security import enter, scram
from tests.gateway.test_server import Wire, batch, produce, produced

ALL = Rules(("*",), ("*",), ("*",), ("*",), admin=True)
FOLDER = "gateway-users/"


@pytest.fixture(autouse=True)
def few_iterations(monkeypatch):
    monkeypatch.setattr(users_module, "_ITERATIONS", 4_096)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def memory(clock):
    return MemoryStore(clock=clock)


@pytest.fixture
def cluster(memory, clock):
    return open_cluster(memory, clock=clock)


def change(cluster, *changes):
    for one in changes:
        found = change_users(open_user_log(cluster), one, deadline=cluster.clock.deadline_in(20_000))
    return found.users


def names(cluster):
    newest, _ = open_user_log(cluster).open_newest()
    return sorted(newest.users if newest else {})


def ann(password="pencil", rules=ALL):
    return new_user("ann", password, rules)


def bob():
    return new_user("bob", "apple", Rules(read=("news",)))


def test_users_come_back_as_they_were_and_no_password_is_kept(cluster, memory):
    user = ann()
    assert change(cluster, added(user)) == {"ann": user}
    newest, _ = open_user_log(cluster).open_newest()
    assert newest is not None
    assert newest.users == {"ann": user}
    (kept,) = memory.list(FOLDER)
    assert b"pencil" not in memory.read(kept.path)


def test_users_are_changed_one_by_one(cluster):
    change(cluster, added(ann()), added(bob()), with_rules("bob", Rules(write=("jobs",))))
    other = new_user("x", "pear", Rules()).keys
    users = change(cluster, with_keys("bob", other), removed("ann"))
    assert (list(users), users["bob"].keys, users["bob"].rules) == (["bob"], other, Rules(write=("jobs",)))
    with pytest.raises(InvalidArgumentError, match="there is a user 'bob'"):
        change(cluster, added(bob()))
    for refused in (removed("eve"), with_rules("eve", ALL), with_keys("eve", other)):
        with pytest.raises(InvalidArgumentError, match="no user 'eve'"):
            change(cluster, refused)
    assert names(cluster) == ["bob"]


def test_of_two_who_change_at_once_one_changes_what_the_other_wrote(cluster):
    change(cluster, added(ann()))
    others = [added(bob())]

    def slow(users):
        while others:
            change(cluster, others.pop())
        return added(new_user("eve", "pear", Rules()))(users)

    assert sorted(change(cluster, slow)) == ["ann", "bob", "eve"]
    others.append(added(new_user("dan", "pear", Rules())))
    with pytest.raises(InvalidArgumentError, match="there is a user 'eve'"):
        change(cluster, slow)
    assert names(cluster) == ["ann", "bob", "dan", "eve"]


@pytest.mark.parametrize(
    "kind",
    [
        FaultKind.LOST_ANSWER,
        FaultKind.LOST_REQUEST,
        FaultKind.FALSE_REFUSAL,
        FaultKind.OWN_SUCCESS,
        FaultKind.THROTTLED,
    ],
)
def test_a_put_whose_answer_is_lost_is_read_back(memory, cluster, clock, kind):
    change(cluster, added(ann()))
    faulty = FaultyStore(memory, Fault(kind=kind, ops=["create"], path=FOLDER, times=2), clock=clock)
    assert sorted(change(open_cluster(faulty, clock=clock), added(bob()))) == ["ann", "bob"]
    assert names(cluster) == ["ann", "bob"]
    assert len([*memory.list(FOLDER)]) == 2


def test_what_is_never_answered_is_unknown_not_failed(memory, cluster, clock):
    change(cluster, added(ann()))
    lost = Fault(kind=FaultKind.LOST_ANSWER, ops=["create"], path=FOLDER, times=None)
    unread = Fault(kind=FaultKind.THROTTLED, ops=["get"], path=f"{2:020d}", times=None)
    other = open_cluster(FaultyStore(memory, unread, lost, clock=clock), clock=clock)
    with pytest.raises(CommitStateUnknownError):
        change(other, added(bob()))


@pytest.mark.parametrize("kind", [kind for kind in FaultKind if kind is not FaultKind.DELAY])
@pytest.mark.parametrize("times", [1, None])
def test_whatever_call_fails_failed_means_that_nothing_was_written(clock, kind, times):
    for number in range(10):
        memory = MemoryStore(clock=clock)
        cluster = open_cluster(memory, clock=clock)
        change(cluster, added(ann()), with_rules("ann", ALL), with_rules("ann", ALL))
        clock.advance(700_000)
        faulty = FaultyStore(memory, Fault(kind=kind, path=FOLDER, skip=number, times=times), clock=clock)
        other = open_cluster(faulty, clock=clock)
        found = outcome(lambda other=other: change(other, added(bob())))
        assert found == "unknown" or names(cluster) == (["ann", "bob"] if found == "done" else ["ann"]), number
        change(cluster, with_rules("ann", Rules()))  # whatever was left behind, the next change is made


def outcome(call):
    try:
        call()
    except (CommitStateUnknownError, SimulatedCrash):
        return "unknown"
    except SparklogError:
        return "failed"
    return "done"


def test_a_list_that_was_lost_is_not_begun_again_by_clients(cluster, memory, clock):
    change(cluster, added(ann()))
    known = StoredUsers(cluster)
    memory.delete([one.path for one in memory.list(FOLDER)])
    with pytest.raises(InvalidConfigurationError, match="gateway-users add"):
        known.change(added(bob()))
    assert not [*memory.list(FOLDER)]


def test_who_slept_before_the_put_says_that_nothing_was_written(memory, cluster, clock, monkeypatch):
    change(cluster, added(ann()))

    def sleeping(*then):
        def slow(users):
            clock.advance(3_600_000)
            for one in then:
                change(cluster, one)
            log = open_user_log(cluster)
            memory.delete([log.path_of(number) for number in range(1, len([*memory.list(FOLDER)]))])
            return added(new_user("eve", "pear", Rules()))(users)

        return slow

    with pytest.raises(KafkaTimeoutError, match="nothing was written"):
        change(cluster, sleeping(added(bob()), removed("bob")))
    assert names(cluster) == ["ann"]


def test_who_slept_in_the_put_says_that_it_is_unknown(memory, cluster, clock):
    change(cluster, added(ann()))
    store = InterruptedStore(memory)
    sleeping = open_cluster(store, clock=clock)

    def others_go_on_and_clean():
        clock.advance(3_600_000)
        change(cluster, added(bob()), removed("bob"))
        log = open_user_log(cluster)
        memory.delete([log.path_of(number) for number in range(1, len([*memory.list(FOLDER)]))])

    create = 3  # behind the listing, the newest list and its fsync
    store.interrupt(others_go_on_and_clean, at=create, after=False)
    with pytest.raises(CommitStateUnknownError, match="is unknown"):
        change(sleeping, added(new_user("eve", "pear", Rules())))
    assert names(cluster) == ["ann"]


def test_old_lists_go_once_what_followed_them_is_ten_minutes_old(cluster, memory, clock):
    change(cluster, added(ann()), added(bob()), removed("bob"))
    assert len([*memory.list(FOLDER)]) == 3
    clock.advance(700_000)
    change(cluster, added(bob()))
    assert [one.path for one in memory.list(FOLDER)] == [f"{FOLDER}{number:020d}.json" for number in (3, 4)]


def test_a_change_that_was_made_stands_where_old_lists_cannot_be_deleted(memory, cluster, clock):
    change(cluster, added(ann()), added(bob()), removed("bob"))
    clock.advance(700_000)
    faulty = FaultyStore(memory, Fault(kind=FaultKind.THROTTLED, ops=["delete"], times=None), clock=clock)
    assert sorted(change(open_cluster(faulty, clock=clock), added(bob()))) == ["ann", "bob"]
    assert len([*memory.list(FOLDER)]) == 4


def test_without_users_a_gateway_says_how_to_add_one(cluster):
    with pytest.raises(InvalidConfigurationError, match="gateway-users add"):
        StoredUsers(cluster)
    change(cluster, added(ann()), removed("ann"))
    with pytest.raises(InvalidConfigurationError, match="gateway-users add"):
        StoredUsers(cluster)


def test_changes_count_after_some_seconds(cluster, clock):
    change(cluster, added(ann()))
    known = StoredUsers(cluster)
    change(cluster, added(bob()))
    assert known.find("bob") is None
    clock.advance(REREAD_MS)
    assert known.find("bob") is not None
    change(cluster, *(with_rules("bob", Rules(read=(str(n),))) for n in range(3)), removed("ann"))
    clock.advance(700_000)
    change(cluster, with_rules("bob", ALL))  # the lists between are gone
    assert known.now(ann()) is not None
    known.read_again()
    assert known.now(ann()) is None
    now = known.now(bob())
    assert now is not None
    assert now.rules == ALL


def test_while_the_store_is_away_those_that_are_known_come_in_for_ten_minutes(memory, cluster, clock):
    change(cluster, added(ann()))
    is_away: list[bool] = []
    away = Fault(kind=FaultKind.THROTTLED, times=None, when=lambda call: bool(is_away))
    known = StoredUsers(open_cluster(FaultyStore(memory, away, clock=clock), clock=clock))
    is_away.append(True)
    clock.advance(KEPT_MS - 60_000)
    assert known.find("ann") is not None
    clock.advance(60_000)
    with pytest.raises(StoreUnavailableError, match="10 minutes"):
        known.find("ann")
    is_away.clear()
    clock.advance(REREAD_MS)
    assert known.find("ann") is not None


def test_while_the_users_cant_be_read_every_attempt_is_held_up(cluster, monkeypatch):
    change(cluster, added(ann()))
    known, waits_s = StoredUsers(cluster), []

    async def sleep(seconds):
        waits_s.append(seconds)

    def away(self):
        raise StoreUnavailableError("away")

    async def play():
        backend = Backend(cluster, GatewaySettings(allow_plain_without_tls=True), None, known)
        one = authentication.Authentication(backend, ClientLog("a socket"), is_encrypted=True)
        one.handshake("PLAIN")
        with pytest.raises(StoreUnavailableError):
            await one.authenticate(b"\0ann\0pencil")
        await backend.close()

    monkeypatch.setattr(StoredUsers, "all", away)
    monkeypatch.setattr(authentication, "asyncio", SimpleNamespace(sleep=sleep))
    asyncio.run(play())
    assert waits_s == [0.1]


@pytest.mark.parametrize("data", [b"", b"[]", b'{"format": 1}', b"nothing", b'{"format": 2, "token": "a"}'])
def test_a_list_that_is_none_lets_nobody_in_and_is_named(memory, cluster, clock, data):
    change(cluster, added(ann()))
    known = StoredUsers(cluster)
    path = f"{FOLDER}{2:020d}.json"
    memory.put(path, data)
    clock.advance(REREAD_MS)
    with pytest.raises((CorruptLogError, UnsupportedVersionError), match=path):
        known.find("ann")
    with pytest.raises((CorruptLogError, UnsupportedVersionError), match=path):
        StoredUsers(cluster)
    memory.delete([path])
    clock.advance(REREAD_MS)
    assert known.find("ann") is not None
    memory.delete([f"{FOLDER}{1:020d}.json"])
    clock.advance(REREAD_MS)
    with pytest.raises(InvalidConfigurationError, match=FOLDER):
        known.find("ann")


def plain(known, message):
    user = begin_exchange("PLAIN", known).step(message).user
    return user and user.name


def test_users_come_in_by_each_mechanism_and_those_of_one_hash_by_that(cluster):
    one_hash = ann().keys["SHA-512"]
    change(cluster, added(ann()), added(bob()), with_keys("bob", {"SHA-512": one_hash}))
    known = StoredUsers(cluster)
    assert scram(begin_exchange("SCRAM-SHA-256", known), "sha256", "pencil").name == "ann"
    assert plain(known, b"\0ann\0pencil") == "ann"
    assert scram(begin_exchange("SCRAM-SHA-512", known), "sha512", "pencil", "bob").name == "bob"
    assert plain(known, b"\0bob\0pencil") == "bob"
    with pytest.raises(AuthenticationError):
        scram(begin_exchange("SCRAM-SHA-256", known), "sha256", "pencil", "bob")
    with pytest.raises(AuthenticationError):
        begin_exchange("PLAIN", known).step(b"\0ann\0apple")


def test_a_name_that_is_not_there_looks_the_same_at_each_gateway(cluster):
    change(cluster, added(ann()))
    first = [begin_exchange("SCRAM-SHA-256", StoredUsers(cluster)).step(b"n,,n=eve,r=0123456789").answer for _ in "ab"]
    salts = [answer.split(b",")[1:] for answer in first]
    assert salts[0] == salts[1]


def test_rules_cover_others():
    assert ALL.covers(ALL)
    assert Rules(read=("a*",)).covers(Rules(read=("a", "ab*", "a*")))
    for mine, theirs in (("a*", "*"), ("a", "a*"), ("b*", "a"), ("ab*", "a*")):
        assert not Rules(read=(mine,)).covers(Rules(read=(theirs,)))
    assert not Rules(("*",), ("*",), ("*",), ("*",)).covers(Rules(admin=True))


@pytest.fixture
def served(monkeypatch):
    """A gateway whose users are always read again before a request."""
    monkeypatch.setattr(authentication, "_SOON_MS", 0.0)
    monkeypatch.setattr(authentication, "_SURELY_MS", 0.0)
    monkeypatch.setattr(stored_users, "REREAD_MS", 0.0)
    cluster = open_cluster(MemoryStore())
    change(cluster, added(ann()), added(bob()))
    with sparklog.gateway.serve(cluster, users="store", allow_plain_without_tls=True) as servers:
        yield cluster, servers


def test_a_users_connections_follow_its_rules_and_end_with_it(served):
    cluster, servers = served
    client = Wire(servers)
    assert enter(client, "ann", "wrong")["error_code"] == 58
    client.close()
    client = Wire(servers)
    assert enter(client, "ann", "pencil")["error_code"] == 0
    client.call("Metadata", 9, {"topics": [{"name": "jobs"}], "allow_auto_topic_creation": True})
    assert produced(client.call("Produce", 9, produce(batch(b"a"))))["error_code"] == 0
    change(cluster, with_rules("ann", Rules(read=("jobs",))))
    assert produced(client.call("Produce", 9, produce(batch(b"a"))))["error_code"] == 29
    change(cluster, removed("ann"))
    client.send("Metadata", 9, {"topics": None, "allow_auto_topic_creation": False})
    assert client.is_closed()
    client.close()


def salted(password, *, name="SHA-256", salt=b"salt", iterations=4_096):
    return hashlib.pbkdf2_hmac(users_module.HASHES[name], password.encode(), salt, iterations)


def upsertion(user, password="pear", **changed):
    asked = {"name": user, "mechanism": 1, "iterations": 4_096, "salt": b"salt", "salted_password": salted(password)}
    return {**asked, **changed}


def deletion(name, mechanism=1):
    return {"name": name, "mechanism": mechanism}


def altered(client, *, deletions=(), upsertions=()):
    body = {"deletions": list(deletions), "upsertions": list(upsertions)}
    return {one["user"]: one["error_code"] for one in client.call("AlterUserScramCredentials", 0, body)["results"]}


def test_clients_change_passwords_but_no_rights(served):
    cluster, servers = served
    client = Wire(servers)
    assert enter(client, "ann", "pencil")["error_code"] == 0
    assert altered(client, upsertions=[upsertion("eve"), upsertion("bob")]) == {"eve": 0, "bob": 0}
    newest, _ = open_user_log(cluster).open_newest()
    assert newest is not None
    assert newest.users["eve"].rules == Rules()
    assert newest.users["bob"].rules == bob().rules
    assert newest.users["bob"].keys["SHA-512"].salt != b"salt"
    assert scram(begin_exchange("SCRAM-SHA-256", StoredUsers(cluster)), "sha256", "pear", "eve").name == "eve"
    found = altered(client, deletions=[deletion("eve", 1), deletion("bob", 2), deletion("dan")])
    assert found == {"eve": 0, "bob": 0, "dan": ErrorCode.RESOURCE_NOT_FOUND}
    newest, _ = open_user_log(cluster).open_newest()
    assert newest is not None
    assert [*newest.users["bob"].keys] == ["SHA-256"]
    described = client.call("DescribeUserScramCredentials", 0, {"users": None})["results"]
    assert [one["user"] for one in described] == ["ann", "bob"]
    other = Wire(servers)
    assert enter(other, "bob", "pear")["error_code"] == 0
    assert altered(other, upsertions=[upsertion("bob")]) == {"bob": ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
    other.close()
    client.close()


def test_users_of_a_file_are_not_changed_by_clients(tmp_path):
    file = tmp_path / "users"
    file.write_text(ann().to_json())
    with sparklog.gateway.serve(f"memory://{uuid.uuid4()}", users=file, allow_plain_without_tls=True) as servers:
        client = Wire(servers)
        assert enter(client, "ann", "pencil")["error_code"] == 0
        assert altered(client, upsertions=[upsertion("ann")]) == {"ann": ErrorCode.INVALID_REQUEST}
        client.close()


def judged(body, users, rules=ALL):
    alteration = Alteration({"deletions": [], "upsertions": [], **body}, rules)
    after = alteration.apply(users)
    return after, {name: code for name, (code, _) in alteration.refusals.items()}


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"name": ""}, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ({"name": "x" * 257}, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ({"mechanism": 3}, ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ({"iterations": 4_095}, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ({"iterations": 16_385}, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ({"salt": b""}, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ({"salted_password": b"x" * 31}, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ({"mechanism": 2}, ErrorCode.UNACCEPTABLE_CREDENTIAL),
    ],
)
def test_credentials_that_are_none_are_refused(changed, code):
    users = {"ann": ann()}
    asked = upsertion("eve", **changed)
    assert judged({"upsertions": [asked]}, users) == (users, {asked["name"]: code})


def test_nobody_is_changed_twice_in_a_request():
    users = {"ann": ann(), "bob": bob()}
    both = [upsertion("ann"), upsertion("ann", mechanism=2, salted_password=salted("pear", name="SHA-512"))]
    after, refused = judged({"deletions": [deletion("bob")], "upsertions": [*both, upsertion("eve")]}, users)
    assert refused == {"ann": ErrorCode.DUPLICATE_RESOURCE}
    assert (after["ann"], [*after["bob"].keys], [*after["eve"].keys]) == (users["ann"], ["SHA-512"], ["SHA-256"])


def test_an_administrator_gives_no_password_to_who_may_do_more():
    users = {"ann": ann(), "bob": bob()}
    less = Rules(read=("n*",), admin=True)
    after, refused = judged({"upsertions": [upsertion("ann"), upsertion("bob"), upsertion("eve")]}, users, less)
    assert refused == {"ann": ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
    assert after["ann"] == users["ann"]


def test_whatever_a_request_says_each_user_has_an_answer_and_what_is_refused_stays(cluster):
    pick = random.Random(51)
    log = open_user_log(cluster)
    users = change(cluster, added(ann()), added(bob()), added(new_user("dan", "pear", Rules(read=("other",)))))
    less = Rules(read=("n*",), admin=True)
    codes: set[ErrorCode] = set()
    names = ["", "ann", "bob", "eve", "dan", "x" * 300, "\0", "é"]
    passwords = [salted("a"), salted("a", name="SHA-512"), b"", b"\xff" * 5_000]

    def one():
        return {"name": pick.choice(names), "mechanism": pick.choice((-128, 0, 1, 1, 1, 2, 127))}

    def upserted():
        return {
            **one(),
            "iterations": pick.choice((-(2**31), 0, 4_096, 4_096, 16_384, 2**31 - 1)),
            "salt": pick.choice((b"", b"s", b"s", b"s" * 5_000)),
            "salted_password": pick.choice(passwords),
        }

    for _ in range(500):
        body = {
            "deletions": [one() for _ in range(pick.randrange(3))],
            "upsertions": [upserted() for _ in range(pick.randrange(4))],
        }
        wire = message("AlterUserScramCredentialsRequest")
        data = bytearray(wire.encode(body, 0))
        if pick.random() < 0.3:
            data[pick.randrange(len(data))] = pick.randrange(256)
        try:
            decoded = wire.decode(memoryview(bytes(data)), 0)
        except WireError:
            continue
        alteration = Alteration(decoded, less)
        after = alteration.apply(users)
        changed = {name for name in {*users, *after} if users.get(name) != after.get(name)}
        assert changed <= {*alteration.names()} - {*alteration.refusals}
        assert after["ann"] is users["ann"]
        assert after["dan"] is users["dan"]
        assert all(one.rules == Rules() for name, one in after.items() if name not in users)
        encoded = user_log.encode_users("token", bytes(32), after)
        assert log.decode(1, encoded).users == after
        codes |= {code for code, _ in alteration.refusals.values()}
    assert len(codes) == 5


def test_confluents_admin_changes_users(served):
    confluent = pytest.importorskip("confluent_kafka.admin")
    cluster, servers = served
    login = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "ann", "sasl.password": "pencil"}
    admin = confluent.AdminClient({"bootstrap.servers": servers, "security.protocol": "SASL_PLAINTEXT", **login})
    info = confluent.ScramCredentialInfo(confluent.ScramMechanism.SCRAM_SHA_256, 8_192)
    asked = [confluent.UserScramCredentialUpsertion("eve", info, b"pear")]
    for future in admin.alter_user_scram_credentials(asked).values():
        future.result(60)
    (found,) = admin.describe_user_scram_credentials(["eve"])["eve"].result(60).scram_credential_infos
    assert found.iterations == 8_192
    assert plain(StoredUsers(cluster), b"\0eve\0pear") == "eve"
    gone = [confluent.UserScramCredentialDeletion("eve", confluent.ScramMechanism.SCRAM_SHA_256)]
    admin.alter_user_scram_credentials(gone)["eve"].result(60)
    with pytest.raises(Exception, match="does not exist"):
        admin.alter_user_scram_credentials(gone)["eve"].result(60)


def test_users_that_were_set_back_to_an_older_list_are_not_taken(cluster, memory, clock):
    """Who was removed would come in again. The list that is known counts while the store is unavailable, and no
    longer."""
    change(cluster, added(ann()), added(bob()))
    backup = {found.path: memory.read(found.path) for found in memory.list("")}
    change(cluster, removed("bob"))
    users = StoredUsers(cluster)
    memory.delete([found.path for found in memory.list("")])
    memory.put_many(backup)
    clock.advance(REREAD_MS)
    assert list(users.all()) == ["ann"]
    clock.advance(KEPT_MS)
    with pytest.raises(StoreUnavailableError, match="ends at entry 2, but this process knows its entry 3"):
        users.all()
