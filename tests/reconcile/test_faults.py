"""The API server refuses, is slow, loses answers: told, backed off, and repaired."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from dockwork_operator.errors import NotLeading
from dockwork_operator.kube.client import Object
from dockwork_operator.kube.credentials import Login
from dockwork_operator.kube.resources import BUDGETS, DEPLOYMENTS, NETWORK_POLICIES, ObjectKey, Resource
from dockwork_operator.logs import configure_logging
from dockwork_operator.process import Operator
from support.faults import FaultyProxy
from support.operators import NUMBERS, Cluster, MovableClock, running, settings_for
from support.redis_server import RedisServer
from support.waiting import until_async


async def is_as_declared(shop: Cluster) -> None:
    """All children are there, as a Queue without faults has them, and nothing is said to be wrong."""
    await shop.wait_deployment(replicas=0)
    await shop.run_pods(0)
    await shop.wait_condition("Ready", "True")
    await shop.wait_condition("Degraded", "False")
    for resource in (BUDGETS, NETWORK_POLICIES):

        async def is_there(resource: Resource = resource) -> bool:
            return await shop.get(resource, "mail-worker") is not None

        await until_async(is_there, within=60, what=f"{resource} mail-worker")


@pytest.mark.covers("OP-101")
@pytest.mark.parametrize(
    ("write", "status"),
    [
        *(("deployments/mail-worker", status) for status in (404, 409, 410, 429, 500, 0)),
        *(("deployments/.*/scale", status) for status in (409, 503)),
        *(("poddisruptionbudgets/", status) for status in (404, 500)),
    ],
)
async def test_a_write_that_fails_once_is_repaired(
    shop: Cluster, proxy: FaultyProxy, proxied: Login, write: str, status: int
) -> None:
    async with running(settings_for(shop.namespace), proxied):
        fault = proxy.fail(status, "PATCH|PUT", write)
        await shop.queue()
        await is_as_declared(shop)
        assert fault.hits == 1


@pytest.mark.covers("OP-101")
@pytest.mark.parametrize(
    "write", ["deployments/mail-worker", "/scale", "networkpolicies", "queues/mail/status"]
)
async def test_a_write_whose_answer_is_lost_ends_the_same(
    shop: Cluster, proxy: FaultyProxy, proxied: Login, write: str
) -> None:
    """As a crash right after the action: it was done, and nobody here knows."""
    async with running(settings_for(shop.namespace), proxied):
        fault = proxy.fail(0, "PATCH|PUT", write, after=True)
        await shop.queue()
        await is_as_declared(shop)
        assert fault.hits == 1


@pytest.mark.covers("OP-074", "OP-101")
async def test_a_process_that_dies_after_any_action_is_followed_by_one_that_ends_the_same(
    shop: Cluster, redis: RedisServer
) -> None:
    """Each of six processes may write n times and then never again; the last one finds what they left."""
    places = [Cluster(shop.login, f"t{next(NUMBERS)}") for _ in range(6)]
    for allowed, place in enumerate(places, start=1):
        await place.open()
        await place.make_secret({"url": redis.url})
        settings = settings_for(shop.namespace, namespaces=(place.namespace,))
        async with running(settings, shop.login) as operator:
            await die_after(operator, allowed, place)
    everywhere = (shop.namespace, *(place.namespace for place in places))
    async with running(settings_for(shop.namespace, namespaces=everywhere), shop.login):
        await shop.queue()
        whole = await children_of(shop)
        for allowed, place in enumerate(places, start=1):
            assert await children_of(place) == whole, f"after {allowed} writes"
            await place.close()


async def die_after(operator: Operator, allowed: int, place: Cluster) -> None:
    writes, leads, last = itertools.count(1), operator.kube.guard, asyncio.Event()

    def guard() -> None:
        leads()
        if next(writes) > allowed:
            last.set()
            raise NotLeading("this process is dead")

    operator.kube.guard = guard
    await place.queue()
    async with asyncio.timeout(60):
        await last.wait()


async def children_of(place: Cluster) -> list[Object]:
    """The specs of the three children once the Queue is ready; its namespace is in the hash of the template."""
    await is_as_declared(place)
    specs: list[Object] = []
    for resource in (DEPLOYMENTS, BUDGETS, NETWORK_POLICIES):
        raw = await place.get(resource, "mail-worker")
        assert raw is not None
        text = json.dumps(raw["spec"]).replace(place.namespace, "NAMESPACE")
        specs.append(json.loads(re.sub(r'("dockwork.dev/template-hash": )"[0-9a-f]+"', r'\1"HASH"', text)))
    return specs


@pytest.mark.covers("OP-101")
async def test_forbidden_is_degraded_with_verb_and_resource_and_not_asked_again_at_once(
    shop: Cluster, proxy: FaultyProxy, proxied: Login
) -> None:
    async with running(settings_for(shop.namespace), proxied):
        fault = proxy.fail(403, "PATCH", "poddisruptionbudgets/", times=None)
        await shop.queue()
        await shop.wait_condition("Degraded", "True", "Forbidden")
        message = await shop.message("Degraded")
        assert "patch" in message
        assert "poddisruptionbudgets.policy" in message
        await shop.wait_condition("Stalled", "True", "Forbidden")
        seen = fault.hits
        await shop.wait_deployment()
        assert fault.hits == seen == 1
        proxy.heal()
        await shop.queue(pdb={"maxUnavailable": 2})  # a new generation does not wait
        await is_as_declared(shop)


@pytest.mark.covers("OP-101")
async def test_a_forbidden_status_is_asked_for_once_in_five_minutes_and_holds_nothing_back(
    shop: Cluster, proxy: FaultyProxy, proxied: Login
) -> None:
    async with running(settings_for(shop.namespace), proxied) as operator:
        fault = proxy.fail(403, "PATCH", "queues/mail/status", times=None)
        await shop.queue()
        await shop.wait_deployment(replicas=0)
        # Every round looks at the Queue again, and each time its status is news.
        looked = reconciles(operator)
        await until_async(lambda: _more(operator, looked + 5), within=60, what="five more looks")
        assert fault.hits == 1
        assert reconciles(operator) < looked + 50, "it looks without a pause"
        proxy.heal()
        await shop.queue(scaling={"maxReplicas": 3})  # a new generation does not wait
        await shop.run_pods(0)
        await is_as_declared(shop)


def reconciles(operator: Operator) -> int:
    """Of Queues, so far."""
    return round(
        sum(
            sample.value
            for metric in operator.metrics.reconcile_seconds.collect()
            for sample in metric.samples
            if sample.name.endswith("_count") and sample.labels["kind"] == "Queue"
        )
    )


async def _more(operator: Operator, count: int) -> bool:
    return reconciles(operator) >= count


@pytest.mark.covers("OP-101")
async def test_a_refused_apply_is_told_in_the_servers_words_and_tried_again_after_a_minute(
    shop: Cluster, proxy: FaultyProxy, proxied: Login
) -> None:
    time = MovableClock()
    async with running(settings_for(shop.namespace), proxied, now=time):
        proxy.fail(422, "PATCH", "networkpolicies/", message="spec.ingress: the moon is not full")
        await shop.queue()
        await shop.wait_condition("Degraded", "True", "ApplyRejected")
        assert "the moon is not full" in await shop.message("Degraded")
        time.ahead = timedelta(seconds=61)
        await is_as_declared(shop)


@pytest.mark.covers("OP-101")
async def test_retry_after_is_kept(shop: Cluster, proxy: FaultyProxy, proxied: Login) -> None:
    async with running(settings_for(shop.namespace), proxied) as operator:
        fault = proxy.fail(429, "PATCH", "deployments/mail-worker", times=1, headers={"Retry-After": "3"})
        await shop.queue()
        began = await _when(operator, lambda: fault.hits == 1)
        applied = await _when(operator, lambda: len(proxy.writes("PATCH .*deployments/mail-worker")) > 1)
        assert applied - began >= 2.5
        await is_as_declared(shop)


async def _when(operator: Operator, holds: Callable[[], bool]) -> float:
    async def ask() -> bool:
        return holds()

    await until_async(ask, within=60)
    return asyncio.get_running_loop().time()


@pytest.mark.covers("OP-104")
async def test_an_event_that_cannot_be_written_stops_nothing(
    shop: Cluster, proxy: FaultyProxy, proxied: Login
) -> None:
    async with running(settings_for(shop.namespace), proxied):
        proxy.fail(500, "POST", "/events", times=None)
        await shop.queue()
        await is_as_declared(shop)


@pytest.mark.covers("OP-101", "OP-304")
async def test_an_error_of_our_own_is_counted_traced_once_and_ends_nothing(
    shop: Cluster, capfd: pytest.CaptureFixture[str]
) -> None:
    async with running(settings_for(shop.namespace), shop.login) as operator:
        configure_logging("info")
        broken = operator.queues._observer.observe
        calls = 0

        async def raises(key: ObjectKey, *args: Any) -> Any:
            nonlocal calls
            if key.name == "mail":
                calls += 1
                raise RuntimeError("a bug of ours")
            return await broken(key, *args)

        operator.queues._observer.observe = raises  # type: ignore[method-assign]
        await shop.queue("mail")
        await shop.queue("other")
        await shop.wait_deployment("other-worker", replicas=0)
        lines = [json.loads(line) for line in capfd.readouterr().err.splitlines() if line.startswith("{")]
        failures = [line for line in lines if line["event"] == "reconcile_failed"]
        assert 1 <= len(failures) == calls <= 3
        assert failures[0]["object"].endswith("/mail")
        assert "RuntimeError: a bug of ours" in failures[0]["trace"]
        operator.queues._observer.observe = broken  # type: ignore[method-assign]
        await is_as_declared(shop)
        lines += [json.loads(line) for line in capfd.readouterr().err.splitlines() if line.startswith("{")]
        applied = [line for line in lines if line["event"] == "applied"]
        assert {line["kind"] for line in applied} >= {"Deployment", "PodDisruptionBudget", "NetworkPolicy"}
        assert all({"object", "generation", "reason"} <= line.keys() for line in applied)
