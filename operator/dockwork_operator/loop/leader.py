"""Which replica acts: a Lease of 15 s, renewed each 2 s, given up after 10 s without a renewal.

Exactness never depends on it: it keeps two replicas from undoing each other's work. A holder's clock decides nothing;
a follower measures, by its own, how long the record has stayed as it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

from dockwork_operator.errors import Conflict, KubeError, NotLeading
from dockwork_operator.kube.lease import LeaseClient, LeaseRecord
from dockwork_operator.logs import EventLog

log = EventLog(__name__)

DURATION = timedelta(seconds=15)
RENEW_WITHIN = 10.0
RETRY_EVERY = 2.0


class Leader:
    """Acquires, renews and releases the Lease, and answers whether a write is allowed now.

    identity     pod name and a random part: the same pod, started again, is someone else
    gained       called when the Lease becomes ours
    lost         called once when it is ours no longer; the process must end
    """

    def __init__(
        self,
        lease: LeaseClient,
        *,
        identity: str,
        now: Callable[[], datetime],
        gained: Callable[[], None],
        lost: Callable[[str], None],
    ) -> None:
        self._lease = lease
        self.identity = identity
        self._now = now
        self._gained = gained
        self._lost = lost
        self._record: LeaseRecord | None = None
        self._unchanged_since = 0.0
        self._renewed = 0.0
        self.leading = False
        #: Of the Lease object; "" until it was seen.
        self.uid = ""

    @property
    def fresh(self) -> bool:
        """Ours, and renewed lately enough that no other replica can have taken it."""
        return self.leading and asyncio.get_running_loop().time() - self._renewed < RENEW_WITHIN

    def guard(self) -> None:
        """Raise NotLeading unless a write is allowed now. A frozen process wakes up here and not in a write."""
        if not self.fresh:
            raise NotLeading("the Lease is not held, or was not renewed for 10 s; nothing was written")

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await self.run_once()
            try:
                async with asyncio.timeout(RETRY_EVERY):
                    await stop.wait()
            except TimeoutError:
                pass

    async def run_once(self) -> None:
        """One try to acquire or to renew; errors count as a try that failed."""
        began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(RENEW_WITHIN / 2):
                await self._try(began)
        except (KubeError, TimeoutError) as error:
            log.warning("lease_not_renewed" if self.leading else "lease_not_read", error=str(error))
        if self.leading and asyncio.get_running_loop().time() - self._renewed >= RENEW_WITHIN:
            self._lose("no renewal for 10 s")

    async def release(self) -> None:
        """Give the Lease back, so that a successor has it at its next try."""
        if not self.leading or self._record is None:
            return
        self.leading = False
        try:
            async with asyncio.timeout(RETRY_EVERY):
                await self._lease.write("", self._record, self._now(), DURATION)
            log.info("lease_released", identity=self.identity)
        except (KubeError, TimeoutError) as error:
            log.warning("lease_not_released", error=str(error))

    async def _try(self, began: float) -> None:
        # A leader's own last record saves the read; a Conflict then says that it is not the last one any more.
        if not self.leading:
            self._see(await self._lease.read(), began)
            if not self._free(began):
                return
        try:
            written = await self._lease.write(self.identity, self._record, self._now(), DURATION)
        except Conflict:
            seen = await self._lease.read()
            self._see(seen, began)
            if self.leading and (seen is None or seen.holder != self.identity):
                self._lose(f"held by {seen.holder if seen else 'nobody'}")
            return
        self._see(written, began)
        self._renewed = began
        if not self.leading:
            self.leading = True
            log.info("lease_acquired", identity=self.identity)
            self._gained()

    def _see(self, record: LeaseRecord | None, at: float) -> None:
        if record is None or self._record is None or record.version != self._record.version:
            self._unchanged_since = at
        self._record = record
        self.uid = record.uid if record else ""

    def _free(self, now: float) -> bool:
        if self._record is None or not self._record.holder:
            return True
        return now - self._unchanged_since >= self._record.duration.total_seconds()

    def _lose(self, why: str) -> None:
        self.leading = False
        log.error("lease_lost", identity=self.identity, reason=why)
        self._lost(why)
