"""The cache of watched objects: newer wins, children by their Queue, whom a change concerns."""

from __future__ import annotations

from typing import Any

import pytest

from dockwork_operator.kube.cache import Cache
from dockwork_operator.kube.resources import CRONJOBS, DEPLOYMENTS, PODS, QUEUES, ObjectKey


def an_object(name: str, version: int, *, uid: str = "u1", queue: str = "", **more: Any) -> dict[str, Any]:
    labels = {"dockwork.dev/queue": queue} if queue else {}
    meta = {"namespace": "shop", "name": name, "uid": uid, "resourceVersion": str(version), "labels": labels}
    return {"metadata": meta, **more}


@pytest.mark.covers("OP-100")
def test_an_older_version_changes_nothing_and_wakes_nobody() -> None:
    cache = Cache()
    assert cache.put(QUEUES, an_object("mail", 10))
    assert not cache.put(QUEUES, an_object("mail", 9))
    assert not cache.put(QUEUES, an_object("mail", 10))
    assert cache.put(QUEUES, an_object("mail", 100))
    raw = cache.get(QUEUES, "shop", "mail")
    assert raw is not None
    assert raw["metadata"]["resourceVersion"] == "100"


def test_a_successor_of_the_same_name_outlives_the_deletion_of_the_former() -> None:
    cache = Cache()
    cache.put(QUEUES, an_object("mail", 10, uid="old"))
    cache.put(QUEUES, an_object("mail", 12, uid="new"))
    assert not cache.remove(QUEUES, an_object("mail", 11, uid="old"))
    assert cache.count(QUEUES) == 1
    assert cache.remove(QUEUES, an_object("mail", 13, uid="new"))
    assert cache.count(QUEUES) == 0


def test_children_are_found_by_their_label_as_it_is_now() -> None:
    cache = Cache()
    cache.put(PODS, an_object("p1", 1, queue="mail"))
    cache.put(PODS, an_object("p2", 2, uid="u2", queue="mail"))
    assert {raw["metadata"]["name"] for raw in cache.of_queue(PODS, "shop", "mail")} == {"p1", "p2"}
    cache.put(PODS, an_object("p1", 3, queue="other"))
    assert [raw["metadata"]["name"] for raw in cache.of_queue(PODS, "shop", "mail")] == ["p2"]
    cache.remove(PODS, an_object("p2", 4, uid="u2"))
    assert cache.of_queue(PODS, "shop", "mail") == ()


def test_a_change_concerns_the_queue_and_the_cronjobs_on_it() -> None:
    cache = Cache()
    cache.put(CRONJOBS, an_object("nightly", 1, spec={"queueRef": {"name": "mail"}}))
    cache.put(CRONJOBS, an_object("mail", 2, uid="u2", spec={"worker": {}}))
    cache.put(CRONJOBS, an_object("elsewhere", 3, uid="u3", spec={"queueRef": {"name": "other"}}))
    queue = ObjectKey(QUEUES, "shop", "mail")
    assert cache.concerned(DEPLOYMENTS, an_object("x", 4, queue="mail")) == (queue,)
    assert cache.concerned(DEPLOYMENTS, an_object("x", 4)) == ()
    assert set(cache.concerned(QUEUES, an_object("mail", 5))) == {
        queue,
        ObjectKey(CRONJOBS, "shop", "nightly"),
        ObjectKey(CRONJOBS, "shop", "mail"),
    }


def test_managed_fields_are_not_kept() -> None:
    cache = Cache()
    raw = an_object("mail", 1)
    raw["metadata"]["managedFields"] = [{"manager": "x"}]
    cache.put(QUEUES, raw)
    kept = cache.get(QUEUES, "shop", "mail")
    assert kept is not None
    assert "managedFields" not in kept["metadata"]
