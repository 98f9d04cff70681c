"""Which gateways clients are told of, as a function of what is known."""

from __future__ import annotations

import os
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import InvalidArgumentError
from sparklog.gateway import zones
from sparklog.gateway.zones import (
    ClientZones,
    Listing,
    Node,
    check_zone,
    lead,
    node_id_of,
    own_node,
    read_listing,
    zone_of_client_id,
)
from sparklog.paths import gateway_mark
from sparklog.storage import ObjectInfo

A, B1, B2, B3 = Node("a", 9092, "a"), Node("b1", 9092, "b"), Node("b2", 9092, "b"), Node("b3", 9092, "b")
ALL = (A, B1, B2, B3)
SESSION_MS = 30_000


def mark(node, modified_ms):
    path = gateway_mark(node.zone, node.address)
    return ObjectInfo(path=path, size_bytes=0, modified_ms=modified_ms, etag="")


@pytest.mark.parametrize(
    ("client_id", "zone"),
    [
        ("zone=eu-1a", "eu-1a"),
        ("app,zone=eu-1a", "eu-1a"),
        ("app;zone=eu-1a,else", "eu-1a"),
        ("app zone=eu-1a", "eu-1a"),
        ("app,warpstream_az=z", "z"),
        ("ws_az=z", "z"),
        ("app,diskless_az=z", "z"),
        ("automq_az=z&automq_type=x", "z"),
        ("zone=a,zone=b", "a"),
        ("ozone=a", None),
        ("zone=", None),
        ("app", None),
        ("", None),
        ("x" * 400 + ",zone=a", None),
    ],
)
def test_a_client_tells_its_zone_by_its_id(client_id, zone):
    assert zone_of_client_id(client_id) == zone


def test_a_client_without_a_zone_is_told_of_the_gateway_that_it_asked():
    for zone in (None, "none"):
        route = lead(ALL, A, zone)
        assert (route.brokers, route.leaders) == ((A,), (A,))
    assert lead((), A, "a").leaders == (A,)


def test_gateways_of_the_zone_lead_and_all_can_be_asked():
    route = lead((B1, B2), A, "b")
    assert route.leaders == (B1, B2)
    assert set(route.brokers) == {A, B1, B2}  # whom it asked lives, whatever the store says


@given(st.binary(min_size=16, max_size=16))
def test_all_gateways_name_the_same_leaders(topic_id):
    assert len({tuple(lead(ALL, own, "b").leader_ids(topic_id)) for own in ALL}) == 1
    assert sorted(lead(ALL, A, "b").leader_ids(topic_id)) == sorted(one.node_id for one in (B1, B2, B3))


def test_topics_of_one_partition_spread_over_the_gateways():
    route = lead(ALL, A, "b")
    firsts = Counter(route.leader_ids(os.urandom(16))[0] for _ in range(3_000))
    assert set(firsts) == {one.node_id for one in (B1, B2, B3)}
    assert min(firsts.values()) > 500


def test_a_silent_gateway_is_left_out_and_later_cleared_away():
    now = 10_000_000
    hour = 3_600_000
    found = read_listing(
        [mark(A, now), mark(B1, now - SESSION_MS), mark(B2, now - SESSION_MS - 1), mark(B3, now - hour - 1)], SESSION_MS
    )
    assert found == Listing((A, B1), (gateway_mark("b", "b3:9092"),), {})
    assert read_listing([], SESSION_MS) == Listing()


def test_of_a_gateway_that_was_started_anew_in_another_zone_the_newest_object_counts():
    moved = Node("a", 9092, "c")
    assert read_listing([mark(A, 5), mark(moved, 6)], SESSION_MS).nodes == (moved,)
    assert read_listing([mark(A, 6), mark(moved, 5)], SESSION_MS).nodes == (A,)


def test_of_two_gateways_with_one_broker_id_one_is_named(monkeypatch):
    monkeypatch.setattr(zones, "node_id_of", lambda host, port: 7 if host in ("b1", "b2") else node_id_of(host, port))
    found = read_listing([mark(one, 5) for one in ALL], SESSION_MS)
    assert found.nodes == (A, B1, B3)
    assert list(found.oddities) == [gateway_mark("b", "b2:9092")]
    assert len({one.node_id for one in lead(found.nodes, B2, "b").brokers}) == 3


@pytest.mark.parametrize(
    "path",
    [
        "gateways/x",
        "gateways/a/",
        "gateways/a/b",
        "gateways/a/b:1/more",
        "gateways/a/b%3A0",
        "gateways/a/b%3A99999",
        "gateways/a/b:9092",
        "gateways/%61/b%3A9092",
        "gateways/a%2Cb/b%3A9092",
        "gateways/a/%0Ab%3A9092",
        "gateways/a/%FF%3A9092",
        "gateways/a/" + "%3A" * 150 + "1",
        f"gateways/{'a' * 61}/b%3A9092",
    ],
)
def test_an_object_of_another_name_is_no_gateway(path):
    odd = ObjectInfo(path=path, size_bytes=1 << 40, modified_ms=5, etag="")
    found = read_listing([mark(A, 5), odd], SESSION_MS)
    assert (found.nodes, found.gone, list(found.oddities)) == ((A,), (), [path])


@given(st.text(), st.text())
def test_no_object_raises(zone, address):
    odd = ObjectInfo(path=f"gateways/{zone}/{address}", size_bytes=0, modified_ms=5, etag="")
    for node in read_listing([odd], SESSION_MS).nodes:
        assert gateway_mark(node.zone or "", node.address) == odd.path


def test_a_gateway_says_nothing_that_others_cannot_read():
    for host in ("10.0.0.1", "broker-1.example.com", "fe80::1"):
        node = own_node("eu-west-1/a", host, 9092)
        assert read_listing([mark(node, 5)], SESSION_MS).nodes == (node,)
    for zone, host, port in [("a", "0.0.0.0", 1), ("a", "::", 1), ("a b", "h", 1), ("", "h", 1), ("a", "h", 0)]:
        with pytest.raises(InvalidArgumentError):
            own_node(zone, host, port)
    with pytest.raises(InvalidArgumentError):
        check_zone("a,b")


def test_a_client_that_told_its_rack_is_sent_on_for_a_while():
    client_zones = ClientZones()
    assert client_zones.zone_of("c", "h", 0) is None
    assert client_zones.note_zone("c", "h", "b", 0)
    assert client_zones.note_zone("c", "h", "b", 4_999)
    assert not client_zones.note_zone("c", "h", "b", 5_000)  # it can't go, else it had
    assert client_zones.zone_of("c", "h", 5_000) == "b"
    assert client_zones.zone_of("c", "elsewhere", 5_000) is None
    assert client_zones.note_zone("c", "h", "a", 6_000)  # another rack
    assert client_zones.zone_of("c", "h", 906_001) is None
    assert client_zones.note_zone("c", "h", "a", 906_002)


def test_a_client_with_transactions_is_not_sent_on():
    client_zones = ClientZones()
    client_zones.stay("c", "h", 0)
    assert not client_zones.note_zone("c", "h", "b", 1)
    assert client_zones.zone_of("c", "h", 1) is None
    assert client_zones.note_zone("d", "h", "b", 1)
    client_zones.stay("d", "h", 2)
    assert client_zones.zone_of("d", "h", 3) is None


def test_of_many_clients_those_heard_of_last_are_kept(monkeypatch):
    monkeypatch.setattr(zones, "_MOST_CLIENTS", 3)
    client_zones = ClientZones()
    for number in range(5):
        client_zones.note_zone(f"c{number}", "h", "b", 0)
        client_zones.zone_of("c0", "h", 0)
    assert [client_zones.zone_of(f"c{number}", "h", 0) for number in range(5)] == ["b", None, None, "b", "b"]
    assert not client_zones.note_zone("x" * 400, "h", "b", 0)
