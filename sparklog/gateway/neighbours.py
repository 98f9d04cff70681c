"""The other gateways of a cluster: each gateway writes its object again from time to time, and lists all objects.

Nothing that is served waits for this, and nothing but who is named to clients depends on it.
"""

from __future__ import annotations

import asyncio
import logging
from itertools import islice
from typing import TYPE_CHECKING

from sparklog.errors import SparklogError, StoreError
from sparklog.gateway.zones import ClientZones, Listing, Node, Route, lead, read_listing, zone_of_client_id
from sparklog.paths import GATEWAYS_FOLDER, gateway_mark
from sparklog.storage.retrying import Patience

if TYPE_CHECKING:
    from sparklog.gateway.backend import Backend, Request

__all__ = ["Neighbours"]

_LOGGER = logging.getLogger("sparklog.gateway")
_MOST_LISTED = 10_000
_MOST_WARNED = 1_000
_KNOWN_SESSIONS = 2
"""A list is used for so many sessions of gateways; if the store is away for longer, this gateway names itself alone."""
_WITHDRAW_MS = 2_000.0


class Neighbours:
    """The other gateways as one knows them. Belongs to the event loop; threads make its calls to the store."""

    def __init__(self, backend: Backend, own: Node) -> None:
        self._backend = backend
        self._own = own
        self._path = gateway_mark(own.zone or "", own.address)
        self._nodes: tuple[Node, ...] = ()
        self._known_ms = float("-inf")
        self._client_zones = ClientZones()
        self._warned: set[str] = set()
        self._beating: asyncio.Task[None] | None = None
        self._ending = asyncio.Event()

    # The answers to clients.

    def route(self, request: Request) -> Route:
        """The gateways that Metadata names to the client of a request."""
        zone = zone_of_client_id(request.client_id)
        if zone is None:
            zone = self._client_zones.zone_of(request.client_id, request.client_host, self._now_ms())
        return lead(self.nodes, self._own, zone)

    def elsewhere(self, request: Request) -> Route | None:
        """Where the client of a Fetch is to read, by its ``client.rack``; None: here.

        A gateway never redirects a client of its own zone, so no two gateways redirect a client to each other. Nor does
        it redirect a client whose id names a zone: Metadata has led that client already.
        """
        zone = request.body.get("rack_id") or ""
        if not zone or zone == self._own.zone or zone_of_client_id(request.client_id) is not None:
            return None
        route = lead(self.nodes, self._own, zone)
        if route.leaders == (self._own,):
            return None
        is_sent = self._client_zones.note_zone(request.client_id, request.client_host, zone, self._now_ms())
        return route if is_sent else None

    def stay(self, request: Request) -> bool:
        """Note that the client of a request has transactions, which live in this gateway alone.

        False: its id names a zone, so others lead the partitions that it writes to."""
        if zone_of_client_id(request.client_id) is not None:
            return False
        self._client_zones.stay(request.client_id, request.client_host, self._now_ms())
        return True

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The gateways that are known, by address; none where that was learned too long ago."""
        age_ms = self._now_ms() - self._known_ms
        return self._nodes if age_ms <= _KNOWN_SESSIONS * self._backend.settings.zone_session_timeout_ms else ()

    def _now_ms(self) -> float:
        return self._backend.cluster.clock.ticks_ms()

    # What makes it known.

    async def begin(self, *, is_open: bool = True) -> None:
        """Make this gateway known, and learn of the others; again and again from now on. ``is_open``: once before this
        returns."""
        if is_open:
            await self._beat()
        self._beating = asyncio.ensure_future(self._beat_on(at_once=not is_open))

    async def _beat_on(self, *, at_once: bool) -> None:
        if at_once:
            await self._beat()
        interval_s = self._backend.settings.zone_heartbeat_interval_ms / 1_000
        while not self._ending.is_set():
            try:
                await asyncio.wait_for(self._ending.wait(), interval_s)
            except TimeoutError:
                await self._beat()

    async def _beat(self) -> None:
        """Write the object, and look who else has. What fails is tried again at the next beat."""
        asked_ms = self._now_ms()
        try:
            listing = await self._backend.run(self._look)
        except SparklogError as error:
            _LOGGER.warning("zone %s: gateways aren't known anew: %s", self._own.zone, error)
            return
        except Exception:  # of a store's library; clients are served on, and the next beat may succeed
            _LOGGER.exception("zone %s: gateways aren't known anew", self._own.zone)
            return
        self._warn(listing)
        self._nodes, self._known_ms = listing.nodes, asked_ms

    def _look(self) -> Listing:
        """A PUT and a LIST; a DELETE where others are gone for good."""
        settings, cluster = self._backend.settings, self._backend.cluster
        store = cluster.store
        deadline = cluster.clock.deadline_in(float(settings.zone_heartbeat_interval_ms))
        with store.patience(Patience(deadline=deadline)):
            store.put(self._path, b"")
            listed = [*islice(store.list(GATEWAYS_FOLDER), _MOST_LISTED)]
            listing = read_listing(listed, settings.zone_session_timeout_ms)
            if len(listed) == _MOST_LISTED:
                _LOGGER.warning(
                    "%s/%s: objects after the first %d are left out", store.uri, GATEWAYS_FOLDER, _MOST_LISTED
                )
            try:
                if listing.gone:
                    store.delete(listing.gone)
            except StoreError as error:  # they count for nothing, and the next beat tries again
                _LOGGER.info("objects of gateways that have ended could not be deleted: %s", error)
        return listing

    def _warn(self, listing: Listing) -> None:
        for path, reason in listing.oddities.items():
            if path not in self._warned and len(self._warned) < _MOST_WARNED:
                self._warned.add(path)
                _LOGGER.warning(
                    "%s: object %r isn't shown to clients as a gateway: %s",
                    self._backend.cluster.store.uri,
                    path,
                    reason,
                )

    async def withdraw(self) -> None:
        """Be known no more: clients that ask for Metadata from now on are led to others."""
        self._ending.set()
        if self._beating is None:
            return
        self._nodes = tuple(node for node in self._nodes if node != self._own)
        _, under_way = await asyncio.wait([self._beating], timeout=_WITHDRAW_MS / 1_000)
        if under_way:  # the store is away; and a PUT could come after the delete
            self._beating.cancel()
            _LOGGER.warning("other gateways name this gateway until its object is too old")
            return
        self._beating = None
        self._nodes = tuple(node for node in self._nodes if node != self._own)

        def delete() -> None:
            deadline = self._backend.cluster.clock.deadline_in(_WITHDRAW_MS)
            with self._backend.cluster.store.patience(Patience(deadline=deadline)):
                self._backend.cluster.store.delete([self._path])

        try:
            await self._backend.run(delete)
        except StoreError as error:
            _LOGGER.warning("other gateways name this gateway until its object is too old: %s", error)
