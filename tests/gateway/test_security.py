"""Who may come in, and what each may do: SASL, TLS, rules; and that there is no way round."""

from __future__ import annotations

import base64
import hashlib
import hmac
import random
import struct
import uuid
from datetime import UTC, datetime, timedelta

import pytest

import sparklog.gateway
from sparklog import Admin, NewTopic
from sparklog.errors import InvalidConfigurationError
from sparklog.gateway import users as users_module
from sparklog.gateway.sasl import AuthenticationError, begin_exchange
from sparklog.gateway.server import tls_context
from sparklog.gateway.users import Rules, User, Users, new_user
from tests.gateway.test_server import Wire, batch, fetched, fetching, produce, produced

ANN = Rules(read=("jobs", "shared.*"), write=("jobs",), groups=("ann.*",), transactional_ids=("ann",))


@pytest.fixture(autouse=True)
def few_iterations(monkeypatch):
    monkeypatch.setattr(users_module, "_ITERATIONS", 4_096)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "users"
    lines = [
        new_user("ann", "pencil", ANN),
        new_user("root", "secret", Rules(("*",), ("*",), ("*",), ("*",), admin=True)),
    ]
    path.write_text("\n".join(user.to_json() for user in lines) + "\n")
    return path


@pytest.fixture
def cluster():
    root = f"memory://gateway-{uuid.uuid4().hex}"
    Admin(root).create_topics([NewTopic("jobs", 1), NewTopic("shared.a", 1), NewTopic("hidden", 1)])
    return root


@pytest.fixture
def servers(cluster, file):
    with sparklog.gateway.serve(cluster, users=file, allow_plain_without_tls=True) as bootstrap_servers:
        yield bootstrap_servers


@pytest.fixture
def connect(servers):
    clients = []

    def make(name=None, password=""):
        clients.append(Wire(servers))
        if name is not None:
            assert enter(clients[-1], name, password)["error_code"] == 0
        return clients[-1]

    yield make
    for client in clients:
        client.close()


def enter(client, name, password):
    assert client.call("SaslHandshake", 1, {"mechanism": "PLAIN"})["error_code"] == 0
    return client.call("SaslAuthenticate", 1, {"auth_bytes": f"\0{name}\0{password}".encode()})


@pytest.mark.parametrize(
    ("name", "version", "body"),
    [
        ("Metadata", 9, {"topics": None, "allow_auto_topic_creation": False}),
        ("Produce", 9, produce(batch(b"a"))),
        ("Fetch", 11, fetching(0)),
        ("DeleteTopics", 4, {"topic_names": ["jobs"], "timeout_ms": 1_000}),
        ("InitProducerId", 3, {"transactional_id": None, "transaction_timeout_ms": 1}),
    ],
)
def test_nobody_gets_anything_before_it_is_known_who_it_is(cluster, connect, name, version, body):
    client = connect()
    assert client.call("ApiVersions", 0, {})["error_code"] == 0
    client.send(name, version, body)
    assert client.is_closed()
    half = connect()
    half.call("SaslHandshake", 1, {"mechanism": "SCRAM-SHA-256"})
    half.send(name, version, body)
    assert half.is_closed()
    behind = connect()
    behind.send("SaslHandshake", 1, {"mechanism": "PLAIN"})
    behind.send("SaslAuthenticate", 1, {"auth_bytes": b"\0ann\0wrong"})
    assert gets_no_third_answer(behind, name, version, body)
    assert sorted(Admin(cluster).list_topics()) == ["hidden", "jobs", "shared.a"]
    assert Admin(cluster).end_offsets([sparklog.TopicPartition("jobs", 0)]).popitem()[1] == 0


def gets_no_third_answer(client, name, version, body):
    try:
        client.send(name, version, body)
        for _ in range(3):
            client.receive()
    except (EOFError, ConnectionError):
        return True
    return False


@pytest.mark.parametrize(("name", "password"), [("ann", "wrong"), ("nobody", "pencil"), ("ann", ""), ("", "pencil")])
def test_a_wrong_name_or_password_ends_the_connection(connect, name, password):
    client = connect()
    assert enter(client, name, password)["error_code"] == 58
    assert client.is_closed()


def test_what_is_no_mechanism_or_comes_out_of_turn_is_refused(connect):
    client = connect()
    found = client.call("SaslHandshake", 1, {"mechanism": "GSSAPI"})
    assert (found["error_code"], found["mechanisms"]) == (33, ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"])
    assert client.is_closed()
    other = connect()
    assert other.call("SaslAuthenticate", 1, {"auth_bytes": b"\0ann\0pencil"})["error_code"] == 34
    assert other.is_closed()


def test_plain_asks_for_encryption(cluster, file):
    with sparklog.gateway.serve(cluster, users=file) as servers:
        client = Wire(servers)
        found = client.call("SaslHandshake", 1, {"mechanism": "PLAIN"})
        assert (found["error_code"], found["mechanisms"]) == (33, ["SCRAM-SHA-256", "SCRAM-SHA-512"])
        client.close()


def test_a_connection_stays_with_one_user(connect):
    client = connect("ann", "pencil")
    assert enter(client, "ann", "pencil")["error_code"] == 0
    assert enter(client, "root", "secret")["error_code"] == 58
    assert client.is_closed()


def test_large_frames_of_unknown_clients_are_not_read(connect):
    client = connect()
    client.send("SaslAuthenticate", 1, {"auth_bytes": bytes(100_000)})
    assert client.is_closed()


@pytest.mark.parametrize("begun", [b"", struct.pack(">hhi", 0, 9, 1)[:7]], ids=["a length", "eleven bytes"])
def test_lengths_that_unknown_clients_announce_hold_up_nobody(connect, begun):
    """Together they announce all that the gateway would keep of requests that aren't answered, 256 MiB."""
    for size in (100 << 20, 100 << 20, 56 << 20):
        connect().socket.sendall(struct.pack(">i", size) + begun)
    other = connect()
    other.socket.settimeout(20)
    assert other.call("ApiVersions", 0, {})["error_code"] == 0
    assert enter(other, "ann", "pencil")["error_code"] == 0


def test_a_refused_name_that_is_long_is_one_short_entry(connect, caplog):
    caplog.set_level("INFO", "sparklog.gateway")
    asked = {"groups": ["\x01" * 32_767], "include_authorized_operations": False}  # longer ones aren't read
    connect("ann", "pencil").call("DescribeGroups", 5, asked)
    (entry,) = [one.getMessage() for one in caplog.records if "DescribeGroups" in one.getMessage()]
    assert len(entry) < 2_000


def test_what_may_not_be_sent_waits_for_no_room(connect):
    for _ in range(3):
        connect("ann", "pencil").socket.sendall(struct.pack(">ihhi", 100 << 20, 0, 9, 1))
    client = connect()
    client.socket.settimeout(20)
    client.socket.sendall(struct.pack(">ihhi", 100 << 20, 0, 9, 1))
    assert client.is_closed()


def scram(exchange, algorithm, password, name="ann", *, spoil=b""):
    first = f"n={name},r=0123456789abcdef".encode()
    answer = exchange.step(b"n,," + first).answer
    fields = dict(part.split(b"=", 1) for part in answer.split(b","))
    salt, iterations = base64.b64decode(fields[b"s"]), int(fields[b"i"])
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    last = b"c=biws,r=" + fields[b"r"] + spoil
    signed = first + b"," + answer + b"," + last
    signature = hmac.digest(hashlib.new(algorithm, client_key).digest(), signed, algorithm)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    done = exchange.step(last + b",p=" + base64.b64encode(proof))
    server_key = hmac.digest(salted, b"Server Key", algorithm)
    assert done.answer == b"v=" + base64.b64encode(hmac.digest(server_key, signed, algorithm))
    return done.user


@pytest.mark.parametrize(("name", "algorithm"), [("SCRAM-SHA-256", "sha256"), ("SCRAM-SHA-512", "sha512")])
def test_scram_lets_in_who_knows_the_password(file, name, algorithm):
    known = Users(file)
    assert scram(begin_exchange(name, known), algorithm, "pencil").name == "ann"
    for wrong in ({"password": "pen"}, {"password": "pencil", "name": "bob"}, {"password": "pencil", "spoil": b"x"}):
        with pytest.raises(AuthenticationError):
            scram(begin_exchange(name, known), algorithm, **wrong)


@pytest.mark.parametrize(
    "message",
    [b"", b"n,,", b"p=tls-unique,,n=ann,r=0123456789", b"n,a=root,n=ann,r=0123456789", b"n,,n=ann,r=1", b"n,,r=1,n=ann",
     b"n,,n=\xff,r=0123456789", b"n,,n=" + b"a" * 300 + b",r=0123456789", b"n,,m=x,n=ann,r=0123456789"],
)  # fmt: skip
def test_bad_first_messages_of_scram_are_refused(file, message):
    with pytest.raises(AuthenticationError):
        begin_exchange("SCRAM-SHA-256", Users(file)).step(message)


@pytest.mark.parametrize(
    "last", [b"", b"c=biws", b"c=biws,r=x,p=AAAA", b"c=eSws,r={nonce},p=AAAA", b"c=biws,r={nonce},p=!"]
)
def test_bad_last_messages_of_scram_are_refused(file, last):
    exchange = begin_exchange("SCRAM-SHA-256", Users(file))
    nonce = exchange.step(b"n,,n=ann,r=0123456789").answer.split(b",")[0][2:]
    with pytest.raises(AuthenticationError):
        exchange.step(last.replace(b"{nonce}", nonce))


def test_a_user_may_do_what_its_rules_say(connect):
    client = connect("ann", "pencil")
    asked = {"topics": None, "allow_auto_topic_creation": False}
    assert {one["name"] for one in client.call("Metadata", 9, asked)["topics"]} == {"jobs", "shared.a"}
    (hidden,) = client.call("Metadata", 9, {**asked, "topics": [{"name": "hidden"}]})["topics"]
    assert hidden["error_code"] == 29
    (new,) = client.call("Metadata", 9, {"topics": [{"name": "shared.b"}], "allow_auto_topic_creation": True})["topics"]
    assert new["error_code"] == 3
    assert produced(client.call("Produce", 9, produce(batch(b"a"))))["error_code"] == 0
    assert produced(client.call("Produce", 9, produce(batch(b"a"), topic="shared.a")))["error_code"] == 29
    assert fetched(client.call("Fetch", 11, fetching(0, topic="shared.a")))["error_code"] == 0
    assert fetched(client.call("Fetch", 11, fetching(0, topic="hidden")))["error_code"] == 29
    assert client.call("DeleteTopics", 4, {"topic_names": ["jobs"]})["responses"][0]["error_code"] == 29
    init = {"transaction_timeout_ms": 1_000}
    codes = [
        client.call("InitProducerId", 3, {**init, "transactional_id": name})["error_code"]
        for name in (None, "ann", "other")
    ]
    assert codes == [0, 0, 53]
    listed = client.call("ListTransactions", 0, {"state_filters": [], "producer_id_filters": []})
    assert listed["error_code"] == 31


@pytest.mark.parametrize(("name", "password", "codes"), [("ann", "pencil", (29, 31)), ("root", "secret", (0, 42))])
def test_topics_are_changed_by_administrators_alone(cluster, connect, name, password, codes):
    client = connect(name, password)
    on_topic, on_broker = codes
    grown = [{"name": "jobs", "count": 3, "assignments": None}]
    body = {"topics": grown, "timeout_ms": 1_000, "validate_only": False}
    assert client.call("CreatePartitions", 1, body)["results"][0]["error_code"] == on_topic
    below = [{"name": "jobs", "partitions": [{"partition_index": 0, "offset": 0}]}]
    (deleted,) = client.call("DeleteRecords", 1, {"topics": below, "timeout_ms": 1_000})["topics"]
    assert deleted["partitions"][0]["error_code"] == on_topic
    for api, operation in (("AlterConfigs", {}), ("IncrementalAlterConfigs", {"config_operation": 0})):
        configs = [{"name": "retention.ms", "value": "1000", **operation}]
        resources = [
            {"resource_type": 2, "resource_name": "jobs", "configs": configs},
            {"resource_type": 4, "resource_name": "1", "configs": []},
        ]
        answered = client.call(api, 1, {"resources": resources, "validate_only": False})["responses"]
        assert [one["error_code"] for one in answered] == [on_topic, on_broker]
    topic = Admin(cluster).describe_topics(["jobs"])[0]
    assert (topic.partition_count, topic.config["retention.ms"]) == ((3, 1000) if name == "root" else (1, 604_800_000))


def test_an_administrator_may_do_everything(connect):
    client = connect("root", "secret")
    new = {"name": "new", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    assert client.call("CreateTopics", 5, {"topics": [new], "timeout_ms": 1_000})["topics"][0]["error_code"] == 0
    assert client.call("DeleteTopics", 4, {"topic_names": ["new"]})["responses"][0]["error_code"] == 0


def test_every_request_that_is_served_has_a_rule():
    from sparklog.gateway.apis import APIS
    from sparklog.gateway.authorizer import _FREE, _REFUSALS

    assert {api.name for api in APIS.values()} <= _FREE | set(_REFUSALS)


def test_users_that_come_later_may_come_in_and_those_that_went_may_not(file, connect):
    file.write_text(new_user("bob", "pen", Rules()).to_json())
    connect("bob", "pen")
    client = connect()
    assert enter(client, "ann", "pencil")["error_code"] == 58
    file.write_text("nothing")
    client = connect()
    assert enter(client, "bob", "pen")["error_code"] == 58


@pytest.mark.parametrize("line", ["nothing", "[]", "{}", '{"user": ""}', "1"])
def test_a_line_that_is_none_is_named(tmp_path, line):
    path = tmp_path / "users"
    path.write_text("\n" + line)
    with pytest.raises(InvalidConfigurationError, match="line 2"):
        Users(path)


def test_a_line_keeps_no_password_and_comes_back_as_it_was():
    user = new_user("ann", "pencil", ANN)
    assert "pencil" not in user.to_json()
    assert User.from_json(user.to_json()) == user
    with pytest.raises(ValueError, match="unknown: wrte"):
        User.from_json(user.to_json().replace('"write"', '"wrte"'))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A self-signed certificate of localhost, and its key, in one file."""
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    pem = serialization.Encoding.PEM
    path.write_bytes(made.public_bytes(pem) + key.private_bytes(pem, *form))
    return path


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_confluents_producer_comes_in_over_tls(cluster, file, certificate, mechanism):
    confluent = pytest.importorskip("confluent_kafka")
    with sparklog.gateway.serve(cluster, users=file, tls=tls_context(certificate)) as servers:
        producer = confluent.Producer(
            {
                "bootstrap.servers": servers,
                "security.protocol": "SASL_SSL",
                "ssl.ca.location": str(certificate),
                "ssl.endpoint.identification.algorithm": "none",
                "sasl.mechanism": mechanism,
                "sasl.username": "ann",
                "sasl.password": "pencil",
            }
        )
        errors = []
        for value in (b"a", random.Random(1).randbytes(900_000)):  # the second comes in many pieces
            producer.produce("jobs", value, on_delivery=lambda error, found: errors.append(error))
            assert producer.flush(60) == 0
        assert errors == [None, None]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_kafka_pythons_producer_comes_in(servers, mechanism):
    kafka = pytest.importorskip("kafka")
    producer = kafka.KafkaProducer(
        bootstrap_servers=servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username="ann",
        sasl_plain_password="pencil",
    )
    assert producer.send("jobs", b"a").get(60).offset == 0
    producer.close()


def test_a_client_without_a_certificate_is_refused_where_one_is_asked_for(cluster, certificate):
    confluent = pytest.importorskip("confluent_kafka")
    admin = pytest.importorskip("confluent_kafka.admin")
    with sparklog.gateway.serve(cluster, tls=tls_context(certificate, client_ca=certificate)) as servers:
        settings = {
            "bootstrap.servers": servers,
            "security.protocol": "SSL",
            "ssl.ca.location": str(certificate),
            "ssl.endpoint.identification.algorithm": "none",
        }
        with pytest.raises(confluent.KafkaException):
            admin.AdminClient(settings).list_topics(timeout=2)
        both = {**settings, "ssl.certificate.location": str(certificate), "ssl.key.location": str(certificate)}
        assert "jobs" in admin.AdminClient(both).list_topics(timeout=60).topics
