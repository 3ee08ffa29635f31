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
        self._metrics = metrics
        self._why_not_live = why_not_live
        self._why_not_ready = why_not_ready
        app = web.Application()
        app.router.add_get("/livez", self._livez)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._show_metrics)
        self._runner = web.AppRunner(app, access_log=None)
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def _livez(self, request: web.Request) -> web.Response:
        return _answer(self._why_not_live())

    async def _readyz(self, request: web.Request) -> web.Response:
        return _answer(self._why_not_ready())

    async def _show_metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=self._metrics.text(), headers={"Content-Type": METRICS_TYPE})


def _answer(why_not: str) -> web.Response:
    return web.Response(status=503 if why_not else 200, text=(why_not or "ok") + "\n")
