"""/livez, /readyz and /metrics over HTTP."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from dockwork_operator.metrics import Metrics

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class ProbeServer:
    """Answers on the operator's own loop: a loop that hangs does not answer, and that is what a probe is for.

    why_not_live, why_not_ready    "" for yes, else the reason
    """

    def __init__(
        self, metrics: Metrics, *, why_not_live: Callable[[], str], why_not_ready: Callable[[], str]
    ) -> None:
        app = web.Application()
        app.router.add_get("/livez", lambda request: _answer(why_not_live()))
        app.router.add_get("/readyz", lambda request: _answer(why_not_ready()))
        app.router.add_get("/metrics", lambda request: _plain(metrics.text(), {"Content-Type": METRICS_TYPE}))
        self._runner = web.AppRunner(app, access_log=None)
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        await self._runner.cleanup()


async def _plain(body: bytes, headers: dict[str, str]) -> web.Response:
    return web.Response(body=body, headers=headers)


async def _answer(why_not: str) -> web.Response:
    return web.Response(status=503 if why_not else 200, text=(why_not or "ok") + "\n")
