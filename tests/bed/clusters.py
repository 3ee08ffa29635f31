"""The cluster of a bed: made, looked at, deleted."""

import json
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from bed.engines import Engine, PrivateEngine, host_engine
from bed.errors import BedError
from bed.facts import PUBLIC_NODE, look
from bed.keys import key_of
from bed.locks import locked
from bed.nodes import node_image, node_tag, prepare
from bed.places import ROOT, Bed
from bed.programs import IN_THE_NODE, PROGRAMS, built
from bed.routes import Route, choose_route
from bed.shell import run
from bed.steps import say, step
from bed.tools import tool

CONFIG = ROOT / "kind-config.yaml"

LOCAL_ADDITIONS = """\
networking:
  # The node image brings its own pod network.
  disableDefaultCNI: true
kubeadmConfigPatches:
- |
  kind: KubeletConfiguration
  # The host may still have version 1 of control groups.
  failCgroupV1: false
  # The image prepares the control group /kubelet, not systemd's kubelet.slice.
  cgroupDriver: cgroupfs
  # Docker's name server answers only inside the node's network namespace; CoreDNS would find a loop.
  resolvConf: /etc/resolv-of-pods.conf
  # Lowering the score needs a capability that a host may lack.
  oomScoreAdj: 0
- |
  kind: KubeProxyConfiguration
  oomScoreAdj: 0
"""
"""What the locally built node image needs beside the checkout's kind-config.yaml."""


def kind_config(text: str, route: Route) -> str:
    """The configuration that kind gets for `route`, from the checkout's."""
    if route is Route.PUBLIC:
        return text
    for key in ("networking:", "kubeadmConfigPatches:"):
        if any(line.startswith(key) for line in text.splitlines()):
            raise BedError(
                f"kind-config.yaml: the key {key[:-1]} is the bed's", remedy="remove it from the file"
            )
    return text.rstrip("\n") + "\n" + LOCAL_ADDITIONS


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    """The cluster of `bed`, on `engine`, made by `route`."""

    bed: Bed
    route: Route
    engine: Engine

    @property
    def log(self) -> Path:
        return self.bed.folder / "log"

    @property
    def made_from(self) -> Path:
        """Written when the cluster is complete: the key of what it was made from."""
        return self.bed.folder / "made-from"

    def kubectl(self, *args: str, stdin: str | None = None) -> str:
        return run(
            [tool("kubectl", self.bed.cache), "--kubeconfig", self.bed.kubeconfig, *args],
            stdin=None if stdin is None else stdin.encode(),
            log=self.log,
        )

    def kind(self, *args: str | Path, remedy: str = "") -> str:
        return run(
            [tool("kind", self.bed.cache), *args], env=self.engine.environment, log=self.log, remedy=remedy
        )

    def nodes(self) -> dict[str, bool]:
        """The containers of the nodes, and whether each runs."""
        label = f"label=io.x-k8s.kind.cluster={self.bed.name}"
        said = self.engine.run("ps", "-a", "--filter", label, "--format", "{{.Names}}\t{{.State}}")
        return {name: state == "running" for name, state in (line.split("\t") for line in said.splitlines())}

    def answers(self) -> bool:
        """Whether the API server answers and every node is Ready."""
        if not self.bed.kubeconfig.is_file():
            return False
        try:
            nodes = json.loads(self.kubectl("get", "nodes", "-o", "json", "--request-timeout=5s"))["items"]
        except BedError:
            return False
        return bool(nodes) and all(_is_ready(node) for node in nodes)


def _is_ready(node: dict[str, dict[str, list[dict[str, str]]]]) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"]["conditions"])


def up(bed: Bed) -> Cluster:
    """Brings the cluster up, from whatever is there already; returns it when it can take work."""
    began = time.monotonic()
    with locked(bed.cache / "locks" / f"bed-{bed.name}", f"the bed {bed.name}"):
        cluster = existing(bed)
        if cluster is None or not (cluster.made_from.is_file() and cluster.answers()):
            cluster = _make(bed)
    _tell_if_outdated(cluster)
    say(f"bed: {bed.name} is up after {time.monotonic() - began:.1f} s; kubeconfig {bed.kubeconfig}")
    return cluster


def existing(bed: Bed) -> Cluster | None:
    """The cluster of `bed` if a run before has begun one, and its daemon answers."""
    route_file = bed.folder / "route"
    if not route_file.is_file():
        return None
    route = Route[route_file.read_text().strip()]
    if route is Route.PUBLIC:
        engine = host_engine()
        return Cluster(bed=bed, route=route, engine=engine) if engine else None
    private = PrivateEngine(cache=bed.cache)
    return Cluster(bed=bed, route=route, engine=private.engine()) if private.is_up() else None


def the_cluster(bed: Bed) -> Cluster:
    """The cluster of `bed`, which must be there."""
    cluster = existing(bed)
    if cluster is None or not cluster.made_from.is_file():
        raise BedError(f"the bed {bed.name!r} has no cluster", remedy="make cluster")
    return cluster


def _make(bed: Bed) -> Cluster:
    route = choose_route(look(bed.cache))
    say(f"bed: {bed.name}: {route.value}")
    bed.folder.mkdir(parents=True, exist_ok=True)
    if route is Route.PUBLIC:
        engine = host_engine()
        assert engine is not None
        return _made(Cluster(bed=bed, route=route, engine=engine), PUBLIC_NODE)
    log = bed.folder / "log"
    with ThreadPoolExecutor(max_workers=1) as beside:
        programs = beside.submit(built, [*IN_THE_NODE, "kind"], bed.cache)
        rest = beside.submit(built, list(PROGRAMS), bed.cache)  # the cluster does not wait for helm
        engine = prepare(bed.cache, log)
        programs.result()
        image = node_image(engine, bed.cache, log)
        cluster = _made(Cluster(bed=bed, route=route, engine=engine), image)
        rest.result()
    return cluster


def _made(cluster: Cluster, image: str) -> Cluster:
    (cluster.bed.folder / "route").write_text(cluster.route.name)
    if cluster.nodes():
        say(f"bed: {cluster.bed.name}: removes what an interrupted or stopped run left")
        _delete(cluster)
    _create(cluster, image)
    return cluster


def _create(cluster: Cluster, image: str) -> None:
    config = cluster.bed.folder / "kind-config.yaml"
    config.write_text(kind_config(CONFIG.read_text(), cluster.route))
    with step(f"creating the cluster {cluster.bed.name}"):
        cluster.kind(
            *("create", "cluster", "--name", cluster.bed.name, "--image", image, "--config", config),
            *("--kubeconfig", cluster.bed.kubeconfig, "--wait", "120s"),
            remedy=f"see {cluster.log}, then `make cluster` again: it begins anew",
        )
    with step("waiting for the pods of the system"):
        for namespace in ("kube-system", "local-path-storage"):
            cluster.kubectl(
                "wait", "--for=condition=Ready", "pod", "--all", "-n", namespace, "--timeout=120s"
            )
    cluster.made_from.write_text(_key(cluster, image))


def _key(cluster: Cluster, image: str) -> str:
    return key_of(image, kind_config(CONFIG.read_text(), cluster.route))


def _tell_if_outdated(cluster: Cluster) -> None:
    image = PUBLIC_NODE if cluster.route is Route.PUBLIC else node_tag(cluster.bed.cache)
    if cluster.made_from.read_text() != _key(cluster, image):
        say(
            "bed: this cluster was made from an older node image or configuration; `make cluster-down` renews it"
        )


def _delete(cluster: Cluster) -> None:
    cluster.made_from.unlink(missing_ok=True)
    with step(f"deleting the cluster {cluster.bed.name}"):
        cluster.kind("delete", "cluster", "--name", cluster.bed.name, "--kubeconfig", cluster.bed.kubeconfig)


def down(bed: Bed) -> None:
    """Deletes the cluster and the bed's folder; the private daemon ends with the last bed that uses it."""
    with locked(bed.cache / "locks" / f"bed-{bed.name}", f"the bed {bed.name}"):
        cluster = existing(bed)
        if cluster is not None and cluster.nodes():
            _delete(cluster)
        shutil.rmtree(bed.folder, ignore_errors=True)
    private = PrivateEngine(cache=bed.cache)
    if private.is_up() and not private.engine().run("ps", "-aq", "--filter", "label=io.x-k8s.kind.cluster"):
        private.down()


def status(bed: Bed) -> list[str]:
    """Lines that tell what there is."""
    cluster = existing(bed)
    if cluster is None:
        return [f"bed {bed.name}: no cluster"]
    lines = [f"bed {bed.name}: {cluster.route.value}, kubeconfig {bed.kubeconfig}"]
    nodes = cluster.nodes()
    lines += [f"  node {name}: {'running' if runs else 'stopped'}" for name, runs in sorted(nodes.items())]
    complete = cluster.made_from.is_file() and cluster.answers()
    lines.append(f"  cluster: {'answers, every node is ready' if complete else 'incomplete; `make cluster`'}")
    return lines


def is_healthy(bed: Bed) -> bool:
    """Whether the bed's cluster is complete and answers."""
    cluster = existing(bed)
    return cluster is not None and cluster.made_from.is_file() and cluster.answers()
