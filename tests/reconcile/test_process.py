"""The operator as a process: its start, its watches, its rights, its probes."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from pathlib import Path

import aiohttp
import pytest

from dockwork_operator.kube.resources import QUEUES
from dockwork_operator.models import rbac
from dockwork_operator.process import Operator
from support.apiserver import ApiServer
from support.faults import FaultyProxy
from support.operators import NUMBERS, Cluster, login_of, running, settings_for
from support.redis_server import RedisServer
from support.waiting import until_async


async def ask(operator: Operator, path: str) -> tuple[int, str]:
    url = f"http://127.0.0.1:{operator.probes.port}{path}"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status, await answer.text()


@pytest.mark.covers("OP-300")
async def test_it_waits_for_its_crds_and_is_not_ready_until_then(
    cluster: Cluster, proxy: FaultyProxy, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = proxy.fail(404, "GET", "/apis/dockwork.dev/v1alpha1$", times=1)
    operator = Operator(settings_for(cluster.namespace), login_of(proxy.kubeconfig(tmp_path)))
    task = asyncio.create_task(operator.run())
    try:
        await until_async(lambda: _true(missing.hits > 0), within=60)
        assert await ask(operator, "/readyz") == (503, "the caches are not filled yet\n")
        assert (await ask(operator, "/livez"))[0] == 200
        await until_async(lambda: _true(operator.health.filled), within=60)
        assert (await ask(operator, "/readyz"))[0] == 200
        assert proxy.paths("GET .*/queues$")
    finally:
        operator.stop()
        assert await task == 0


async def _true(value: bool) -> bool:
    return value


@pytest.mark.covers("OP-302")
async def test_of_two_replicas_one_acts_and_the_other_takes_over_at_its_end(cluster: Cluster) -> None:
    async with running(settings_for(cluster.namespace), cluster.login) as second_to_lead_later:
        leader = second_to_lead_later
        async with running(settings_for(cluster.namespace), cluster.login, leading=False) as standby:
            assert leader.leader.fresh
            assert not standby.leader.fresh
            await cluster.queue()
            await cluster.wait_condition("Accepted", "False", "SecretNotFound")
            await until_async(lambda: _true(standby.cache.count(QUEUES) == 1), within=60)
            leader.stop()
            await until_async(lambda: _true(standby.leader.fresh), within=5, what="the successor leads")
            await cluster.queue("second")
            await cluster.wait_condition("Accepted", "False", "SecretNotFound", "second")


@pytest.mark.covers("OP-300", "OP-303")
async def test_a_watch_that_is_cut_comes_back_and_misses_nothing(
    cluster: Cluster, proxy: FaultyProxy, tmp_path: Path
) -> None:
    async with running(settings_for(cluster.namespace), login_of(proxy.kubeconfig(tmp_path))):
        await until_async(lambda: _true(proxy.watches >= 6), within=60, what="all watches are open")
        assert proxy.drop_watches() >= 6
        proxy.fail(410, "GET", "queues.*watch=true", times=1)
        await cluster.queue()
        await cluster.wait_condition("Accepted", "False", "SecretNotFound", within=60)


@pytest.mark.covers("OP-303")
async def test_the_audit_feeds_in_what_a_silent_watch_missed_and_fails_liveness_after_two(
    cluster: Cluster, proxy: FaultyProxy, tmp_path: Path
) -> None:
    settings = settings_for(cluster.namespace, audit=timedelta(seconds=600))
    async with running(settings, login_of(proxy.kubeconfig(tmp_path))) as operator:
        await until_async(lambda: _true(proxy.watches >= 6), within=60)
        operator.audit.grace = 0.1
        operator._deliver = lambda *event: None  # type: ignore[assignment,method-assign]
        assert operator._watches is not None
        operator._watches._sink = lambda *event: None
        await cluster.queue()
        assert await operator.audit.run_once() == 1
        await cluster.wait_condition("Accepted", "False", "SecretNotFound")
        assert (await ask(operator, "/livez"))[0] == 200

        await cluster.queue("second")
        assert await operator.audit.run_once() == 1
        assert await ask(operator, "/livez") == (
            503,
            "the watch of queues.dockwork.dev missed changes in 2 audits\n",
        )
        assert await operator.audit.run_once() == 0
        assert (await ask(operator, "/livez"))[0] == 200
        status, text = await ask(operator, "/metrics")
        assert status == 200
        assert 'dockwork_operator_watch_stale_total{resource="queues.dockwork.dev"} 2.0' in text


@pytest.mark.covers("OP-310", "OP-311")
async def test_a_namespace_without_its_role_degrades_only_itself(
    api_server: ApiServer, cluster: Cluster, redis: RedisServer, tmp_path: Path
) -> None:
    forbidden = f"t{next(NUMBERS)}"
    await cluster.make_namespace(forbidden)
    token = a_login_with_a_role_in(api_server, cluster.namespace)
    proxy = FaultyProxy(api_server, token=token)
    await proxy.start()
    try:
        settings = settings_for(cluster.namespace, namespaces=(cluster.namespace, forbidden))
        async with running(settings, login_of(proxy.kubeconfig(tmp_path))) as operator:
            await cluster.make_secret({"url": redis.url})
            await cluster.queue(pdb={"mode": "Auto"})
            await cluster.wait_deployment(replicas=0)
            await cluster.run_pods(0)
            await cluster.wait_condition("Ready", "True")
            assert operator._access is not None
            assert operator._access.allowed == (cluster.namespace,)
            assert operator._access.refused[forbidden] == "list queues.dockwork.dev"
            assert not proxy.paths(f"/namespaces/{forbidden}/")
            # The verbs of the chart suffice for everything that was asked.
            assert [str(seen) for seen in proxy.seen if seen.status == 403] == []
    finally:
        await proxy.stop()


@pytest.mark.covers("OP-310", "OP-311")
async def test_a_role_that_comes_later_is_found(
    api_server: ApiServer, cluster: Cluster, tmp_path: Path
) -> None:
    later = f"t{next(NUMBERS)}"
    await cluster.make_namespace(later)
    proxy = FaultyProxy(api_server, token=a_login_with_a_role_in(api_server, cluster.namespace))
    await proxy.start()
    try:
        settings = settings_for(cluster.namespace, namespaces=(cluster.namespace, later))
        async with running(settings, login_of(proxy.kubeconfig(tmp_path))) as operator:
            give_role(api_server, later, account=cluster.namespace)
            await operator._renew_access()
            other = Cluster(cluster.login, later)
            await other.kube.open()
            await other.queue()
            await other.wait_condition("Accepted", "False")
            await other.close()
    finally:
        await proxy.stop()


def give_role(server: ApiServer, namespace: str, *, account: str) -> None:
    """The rules of the chart, as a Role; without the names to which Secrets and the Lease are narrowed."""
    rules = [
        {"apiGroups": [grant.group], "resources": grant.resources, "verbs": grant.verbs}
        for grant in (*rbac.WATCHED, *rbac.OWN)
    ]
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "rules": rules}
    role["metadata"] = {"name": "operator", "namespace": namespace}
    subject = {"kind": "ServiceAccount", "name": "operator", "namespace": account}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "operator", "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "operator"},
        "subjects": [subject],
    }
    items = {"apiVersion": "v1", "kind": "List", "items": [role, binding]}
    server.kubectl("apply", "-f", "-", input=json.dumps(items))


def a_login_with_a_role_in(server: ApiServer, namespace: str) -> str:
    """The token of a service account that may do what OP-310 says, in one namespace only."""
    server.kubectl("create", "serviceaccount", "operator", "-n", namespace)
    give_role(server, namespace, account=namespace)
    return server.kubectl("create", "token", "operator", "-n", namespace).strip()


@pytest.mark.covers("OP-311")
async def test_access_that_is_lost_ends_the_process(
    api_server: ApiServer, cluster: Cluster, tmp_path: Path
) -> None:
    proxy = FaultyProxy(api_server, token=a_login_with_a_role_in(api_server, cluster.namespace))
    await proxy.start()
    try:
        login = login_of(proxy.kubeconfig(tmp_path))
        operator = Operator(settings_for(cluster.namespace), login)
        task = asyncio.create_task(operator.run())
        await until_async(lambda: _true(operator.leader.fresh), within=60)
        api_server.kubectl("delete", "rolebinding", "operator", "-n", cluster.namespace)

        async def lost() -> bool:
            await operator._renew_access()
            return bool(operator.failure)

        await until_async(lost, within=10, every=0.2)
        assert await asyncio.wait_for(task, 20) == 1
        assert "access was lost" in operator.failure
    finally:
        await proxy.stop()


@pytest.mark.covers("OP-311")
async def test_in_cluster_mode_a_namespace_needs_no_mention(
    cluster: Cluster, proxy: FaultyProxy, tmp_path: Path
) -> None:
    settings = settings_for(cluster.namespace, namespaces=("*",))
    async with running(settings, login_of(proxy.kubeconfig(tmp_path))):
        await cluster.queue()
        await cluster.wait_condition("Accepted", "False", "SecretNotFound")
        assert "GET /apis/dockwork.dev/v1alpha1/queues" in proxy.paths("")
        assert not [path for path in proxy.paths("GET .*/queues$") if "/namespaces/" in path]
