"""Which gateways Metadata names to a client: those of its zone lead partitions, the same for all clients of a zone.
Pure: what is known and the time come in as arguments.

A wrong answer costs time alone: any gateway serves any partition, and the store decides what is in a topic.
"""

from __future__ import annotations

import re
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sparklog.errors import InvalidArgumentError
from sparklog.paths import GATEWAYS_FOLDER, decode_id, gateway_mark
from sparklog.storage import ObjectInfo

__all__ = [
    "ClientZones",
    "Listing",
    "Node",
    "Route",
    "check_zone",
    "lead",
    "node_id_of",
    "own_node",
    "read_listing",
    "zone_of_client_id",
]

_ZONE = re.compile(r"[A-Za-z0-9._:/-]{1,60}")
_ADDRESS = re.compile(r"([A-Za-z0-9._:-]{1,150}):([1-9][0-9]{0,4})")
_ZONE_IN_CLIENT_ID = re.compile(r"(?:^|[\s,;&])(?:zone|ws_az|warpstream_az|diskless_az|automq_az)=([^\s,;&=]+)")
"""Names of other products are taken, too: clients that were set up for them need no change. Source: documentation of
WarpStream ("client ID features"), Inkless and AutoMQ."""
_FORGOTTEN_MS = 3_600_000
"""A gateway that was silent for so long is gone: its object is deleted. If that was wrong, it writes it again."""
_MOST_CLIENTS = 10_000
_LONGEST_ID = 300
_REDIRECTED_MS = 5_000.0
"""For so long a client is sent on without records. Who doesn't go then can't, and is served where it is."""
_REMEMBERED_MS = 900_000.0
"""A client that wasn't heard of for so long is forgotten; clients ask for Metadata each five minutes."""


def node_id_of(host: str, port: int) -> int:
    """The broker id of the gateway at an address; clients keep one address for each id."""
    return 1 + zlib.crc32(f"{host}:{port}".encode()) % (2**31 - 2)


def check_zone(zone: str) -> str:
    """The zone, if it may be called so. Raises ``InvalidArgumentError``."""
    if not _ZONE.fullmatch(zone):
        raise InvalidArgumentError(
            f"invalid zone {zone[:60]!r}: expected 1 to 60 characters out of a-z A-Z 0-9 . _ : / -"
        )
    return zone


def own_node(zone: str, host: str, port: int) -> Node:
    """A gateway that makes itself known. Raises ``InvalidArgumentError``: others couldn't read its object."""
    node = Node(host, port, check_zone(zone))
    if host in ("", "0.0.0.0", "::"):  # noqa: S104 - is compared
        raise InvalidArgumentError(f"clients can't connect to {node.address}: a gateway with a zone needs --advertise")
    if _node_of(gateway_mark(zone, node.address)) != node:
        raise InvalidArgumentError(f"invalid address {node.address!r}: expected a name or address, and a port")
    return node


def zone_of_client_id(client_id: str) -> str | None:
    """The zone that a client names in its ``client.id``, by ``zone=<name>`` at its beginning or behind a space, comma,
    semicolon or ampersand; None: it names none."""
    match = _ZONE_IN_CLIENT_ID.search(client_id[:_LONGEST_ID])
    return None if match is None else match[1]


@dataclass(frozen=True, slots=True, order=True)
class Node:
    """A gateway as Metadata names it to clients."""

    host: str
    port: int
    zone: str | None

    @property
    def node_id(self) -> int:
        """Its broker id."""
        return node_id_of(self.host, self.port)

    @property
    def address(self) -> str:
        """``host:port``."""
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Route:
    """The gateways that Metadata names to a client."""

    own: Node
    """The gateway that was asked."""
    brokers: tuple[Node, ...]
    """All that the client may ask, ``own`` among them: group coordinators, and who answers if those of its zone die."""
    leaders: tuple[Node, ...]
    """The leaders of partitions: all in one zone, or ``own`` alone."""

    def leader_ids(self, topic_id: bytes) -> list[int]:
        """Broker ids by which a topic's partitions are led: of partition p the one at p modulo their number.

        They are ranked anew for each topic, so that topics of one partition spread, too.
        """
        ids = [node.node_id for node in self.leaders]
        return ids if len(ids) == 1 else sorted(ids, key=lambda node: (zlib.crc32(topic_id, node), node))


@dataclass(frozen=True, slots=True)
class Listing:
    """The outcome of a look at the objects of gateways."""

    nodes: tuple[Node, ...] = ()
    """The gateways that live, by address; no two have one broker id."""
    gone: tuple[str, ...] = ()
    """Paths of those that are gone for good."""
    oddities: Mapping[str, str] = field(default_factory=dict)
    """Reasons why objects aren't used, by path."""


def read_listing(listed: Iterable[ObjectInfo], session_timeout_ms: float) -> Listing:
    """The gateways that have shown lately that they live, by the times that the store gave.

    Args:
        listed: the objects of gateways. The newest time is the present: the caller has just written its own.
    """
    objects = list(listed)
    now_ms = max((file.modified_ms for file in objects), default=0)
    gone: list[str] = []
    oddities: dict[str, str] = {}
    by_address: dict[str, tuple[int, Node]] = {}
    for file in objects:
        node = _node_of(file.path)
        age_ms = now_ms - file.modified_ms
        if node is None:
            oddities[file.path] = "its name isn't that of a zone and an address"
        elif age_ms > _FORGOTTEN_MS:
            gone.append(file.path)
        elif age_ms <= session_timeout_ms:
            # One that was started anew in another zone: the newest object counts.
            seen = by_address.get(node.address)
            by_address[node.address] = (file.modified_ms, node) if seen is None else max(seen, (file.modified_ms, node))
    nodes: dict[int, Node] = {}
    for _, node in sorted(by_address.values(), key=lambda entry: entry[1].address):
        first = nodes.setdefault(node.node_id, node)
        if first is not node:
            path = gateway_mark(node.zone or "", node.address)
            oddities[path] = f"it has the broker id {node.node_id} of {first.address}: give it another port"
    return Listing(tuple(nodes.values()), tuple(gone), oddities)


def _node_of(path: str) -> Node | None:
    zone, _, address = (decode_id(part) for part in path[len(GATEWAYS_FOLDER) :].partition("/"))
    match = _ADDRESS.fullmatch(address)
    if match is None or not _ZONE.fullmatch(zone) or int(match[2]) > 65_535:
        return None
    try:
        is_canonical = gateway_mark(zone, address) == path
    except InvalidArgumentError:
        return None
    return Node(match[1], int(match[2]), zone) if is_canonical else None


@dataclass(slots=True)
class _ClientZone:
    zone: str | None
    """None: it is transactional, and stays where it is."""
    since_ms: float
    heard_ms: float


class ClientZones:
    """The zones that clients named by ``client.rack`` in Fetch; Metadata doesn't carry it. Belongs to the event loop.

    A client is known by its id and its host: it may ask for Metadata by another connection than that of Fetch.
    """

    def __init__(self) -> None:
        self._zones: OrderedDict[tuple[str, str], _ClientZone] = OrderedDict()
        """In the order in which they were heard of last."""

    def zone_of(self, client_id: str, client_host: str, now_ms: float) -> str | None:
        """The zone that a client named; None: none."""
        heard = self._heard((client_id, client_host), now_ms)
        return None if heard is None else heard.zone

    def note_zone(self, client_id: str, client_host: str, zone: str, now_ms: float) -> bool:
        """Note a client's zone. Is it to be sent there now? Not if it is transactional, nor if it didn't go before."""
        key = client_id, client_host
        if len(client_id) > _LONGEST_ID:
            return False
        heard = self._heard(key, now_ms)
        if heard is None or (heard.zone is not None and heard.zone != zone):
            heard = self._put(key, zone, now_ms)
        return heard.zone == zone and now_ms - heard.since_ms < _REDIRECTED_MS

    def stay(self, client_id: str, client_host: str, now_ms: float) -> None:
        """Note that a client has transactions, which live in this gateway alone: Metadata names it no other."""
        if len(client_id) <= _LONGEST_ID:
            self._put((client_id, client_host), None, now_ms)

    def _heard(self, key: tuple[str, str], now_ms: float) -> _ClientZone | None:
        client = self._zones.get(key)
        if client is None:
            return None
        if now_ms - client.heard_ms > _REMEMBERED_MS:
            del self._zones[key]
            return None
        client.heard_ms = now_ms
        self._zones.move_to_end(key)
        return client

    def _put(self, key: tuple[str, str], zone: str | None, now_ms: float) -> _ClientZone:
        self._zones[key] = client = _ClientZone(zone, now_ms, now_ms)
        self._zones.move_to_end(key)
        if len(self._zones) > _MOST_CLIENTS:
            self._zones.popitem(last=False)
        return client


def lead(nodes: Sequence[Node], own: Node, zone: str | None) -> Route:
    """The route of a client.

    Args:
        nodes: the gateways that are known, ``own`` perhaps among them.
        zone: of the client; None: it named none.
    """
    leaders = tuple(node for node in nodes if zone is not None and node.zone == zone)
    if not leaders:
        return Route(own, (own,), (own,))
    others = {node.node_id: node for node in nodes}
    return Route(own, tuple(sorted((others | {own.node_id: own}).values())), leaders)
