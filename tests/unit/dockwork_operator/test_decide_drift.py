"""What counts as drift: a field of ours that says something else; nothing of the server's or of others."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from dockwork_operator.decide.drift import APPLIED, has_drifted, marked

MANIFEST: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "mail-worker", "labels": {"a": "1"}},
    "spec": {
        "minReadySeconds": 0,
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "worker",
                        "image": "r/shop:1",
                        "args": ["--fast"],
                        "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "1000m"}],
                        "resources": {"requests": {"cpu": "0.1", "memory": "1024Ki"}, "limits": {}},
                    }
                ],
                "volumes": [{"name": "tmp", "emptyDir": {}}],
            }
        },
    },
}
WANTED = marked(MANIFEST)


def a_live() -> dict[str, Any]:
    """What the API server makes of it: defaults filled in, zero and empty fields dropped, quantities rewritten."""
    live = deepcopy(WANTED)
    spec = live["spec"]
    del spec["minReadySeconds"]
    spec["progressDeadlineSeconds"] = 600
    container = spec["template"]["spec"]["containers"][0]
    container["resources"] = {"requests": {"cpu": "100m", "memory": "1Mi"}}
    container["imagePullPolicy"] = "IfNotPresent"
    spec["template"]["spec"]["volumes"][0] = {"name": "tmp"}
    return live


def container_of(live: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = live["spec"]["template"]["spec"]["containers"][0]
    return found


@pytest.mark.covers("OP-076")
def test_defaults_and_rewritten_quantities_are_no_drift() -> None:
    assert not has_drifted(WANTED, a_live())


@pytest.mark.covers("OP-076")
def test_what_others_add_is_no_drift() -> None:
    live = a_live()
    live["metadata"]["annotations"]["theirs"] = "x"
    container_of(live)["env"].append({"name": "THEIRS", "value": "x"})
    live["spec"]["template"]["spec"]["containers"].insert(0, {"name": "sidecar", "image": "x"})
    live["spec"]["replicas"] = 7

    assert not has_drifted(WANTED, live)


@pytest.mark.covers("OP-076")
@pytest.mark.parametrize(
    "edit",
    [
        lambda live: container_of(live).update(image="r/shop:2"),
        lambda live: container_of(live).update(args=["--fast", "--slow"]),
        lambda live: container_of(live)["env"].pop(0),
        lambda live: container_of(live)["env"][1].update(value="1"),
        lambda live: container_of(live)["resources"]["requests"].update(cpu="200m"),
        lambda live: live["spec"].update(minReadySeconds=9),
        lambda live: live["metadata"].pop("labels"),
        lambda live: live["spec"]["template"]["spec"].pop("containers"),
    ],
    ids=["image", "args", "env removed", "env value", "cpu", "zero set", "labels", "containers"],
)
def test_a_change_of_what_we_own_is_drift(edit: Any) -> None:
    live = a_live()
    edit(live)

    assert has_drifted(WANTED, live)


@pytest.mark.covers("OP-076")
def test_a_field_that_we_no_longer_want_is_drift_by_the_digest() -> None:
    fewer = deepcopy(MANIFEST)
    container_of(fewer)["env"].pop()

    assert has_drifted(marked(fewer), a_live())
    assert marked(fewer)["metadata"]["annotations"][APPLIED] != WANTED["metadata"]["annotations"][APPLIED]
