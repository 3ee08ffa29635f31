"""The objects of a Queue: made, kept as declared, taken over, left alone, deleted.

What is declared comes rendered; here it is compared with what lives. A foreign object of a child's name is never
touched (OP-078), an own one that is no longer declared goes (OP-079).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from dockwork_operator.constants import ANNOTATION_ADOPTABLE_BY, LABEL_TEMPLATE_HASH
from dockwork_operator.decide.drift import APPLIED, has_drifted, marked
from dockwork_operator.decide.manifests import Children
from dockwork_operator.decide.memory import Agreed, Memory, subject_of, subject_of_child
from dockwork_operator.decide.names import selector_labels, worker_name
from dockwork_operator.decide.plan import Action, ApplyChild, DeleteChild, Scale
from dockwork_operator.decide.seen import ChildSeen, DeploymentSeen, QueueSeen
from dockwork_operator.models.queues import Queue

Manifest = Mapping[str, Any]

#: An apply that changed nothing is tried again after so long (OP-076).
APPLY_AGAIN = timedelta(minutes=10)

CREATED, ADOPTED, TEMPLATE, DRIFT = (
    "created",
    "adopted",
    "the template changed",
    "differs from what is declared",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """Whose an object of a child's name is. conflict: why it is left alone, "" if it is ours or can be taken."""

    ours: bool = False
    adopt: bool = False
    conflict: str = ""


def claim(queue: Queue, child: ChildSeen) -> Claim:
    """Ours by owner reference; or handed over by its owner, if it selects what we select."""
    if child.owner_uid == queue.uid:
        return Claim(ours=True)
    name = f"{child.kind} {child.name}"
    if child.owner_uid:
        return Claim(conflict=f"{name} belongs to {child.owner}; it is left alone")
    if child.annotations.get(ANNOTATION_ADOPTABLE_BY) != queue.ref.name:
        return Claim(
            conflict=f"{name} exists and is not this Queue's; it is left alone. To hand it over, annotate it "
            f"with {ANNOTATION_ADOPTABLE_BY}={queue.ref.name}"
        )
    selects = ((child.live.get("spec") or {}).get("selector") or {}).get("matchLabels")
    if child.kind == "Deployment" and selects != selector_labels(queue.ref.name):
        return Claim(conflict=f"{name} has another selector, which cannot be changed: it cannot be adopted")
    return Claim(adopt=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class Household:
    """The children of one Queue: what is declared, and what lives.

    deployment    ours, or ours to take; None if there is none, it is ending, or it is another's
    conflicts     why objects of our names are left alone
    """

    queue: Queue
    declared: Children
    seen: QueueSeen
    deployment: DeploymentSeen | None
    conflicts: tuple[str, ...]

    @property
    def creating(self) -> bool:
        """The Deployment is not there, or its creation is not over."""
        return self.deployment is None or not self.deployment.begun


def household(queue: Queue, declared: Children, seen: QueueSeen) -> Household:
    """Sort the children into ours and others'."""
    found = seen.deployment
    conflicts = []
    mine = None
    if found is not None and not found.child.deleting:
        whose = claim(queue, found.child)
        conflicts.append(whose.conflict)
        mine = None if whose.conflict else found
    conflicts += [claim(queue, child).conflict for child in _by_name(declared, seen) if not child.deleting]
    return Household(
        queue=queue,
        declared=declared,
        seen=seen,
        deployment=mine,
        conflicts=tuple(dict.fromkeys(text for text in conflicts if text)),
    )


def _by_name(declared: Children, seen: QueueSeen) -> list[ChildSeen]:
    """Live objects that have the name of a declared one, the Deployment aside."""
    names = {
        (m["kind"], m["metadata"]["name"]) for m in (declared.pdb, declared.network_policy) if m is not None
    }
    return [child for child in seen.children if (child.kind, child.name) in names]


# --- apply -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """What to apply and to scale so that the children are as declared, and what was found to agree."""

    actions: tuple[Action, ...] = ()
    agreed: Mapping[str, Agreed]


def keep_children(
    house: Household, memory: Memory, to: int, *, held: bool, paused: bool, now: datetime
) -> Kept:
    """Make what is missing, repair what differs.

    to        pods that a new Deployment starts with
    held      its new template must wait
    paused    it must not roll on for now
    """
    agreed: dict[str, Agreed] = {}
    actions: list[Action] = []
    if house.deployment is None:
        # Nothing is made in the place of another's object, or of one that is still ending.
        actions += _create(house, to) if house.seen.deployment is None else ()
    elif not house.deployment.begun and claim(house.queue, house.deployment.child).ours:
        actions += _go_on(house, house.deployment, to)
    elif not held:
        manifest = _paused(house.declared.deployment) if paused else house.declared.deployment
        actions += _keep(house, manifest, house.deployment.child, memory, agreed, now)
    children = {(child.kind, child.name): child for child in house.seen.children}
    for other in (house.declared.pdb, house.declared.network_policy):
        if other is None:
            continue
        live = children.get((other["kind"], other["metadata"]["name"]))
        if live is None:
            actions.append(ApplyChild(manifest=marked(other), reason=CREATED))
        else:
            actions += _keep(house, other, live, memory, agreed, now)
    return Kept(actions=_unblocked(house, tuple(actions), memory, now), agreed=agreed)


def _create(house: Household, to: int) -> tuple[Action, ...]:
    """Unset replicas become 1, but a paused Deployment makes no pod: so an idle Queue starts none (OP-074)."""
    manifest = house.declared.deployment
    scale = Scale(name=worker_name(house.queue.ref.name), to=to, seen=1, reason=CREATED)
    return (
        ApplyChild(manifest=marked(_paused(manifest)), reason="created, without pods"),
        *((scale,) if to != 1 else ()),
        ApplyChild(manifest=marked(manifest), reason=CREATED),
    )


def _go_on(house: Household, live: DeploymentSeen, to: int) -> tuple[Action, ...]:
    """A process before this one was interrupted between the steps of a creation."""
    scale = Scale(name=live.child.name, to=to, seen=live.replicas, reason=CREATED)
    apply = ApplyChild(manifest=marked(house.declared.deployment), reason="creation goes on")
    return (apply,) if live.replicas == to else (scale, apply)


def _paused(manifest: Manifest) -> dict[str, Any]:
    return {**manifest, "spec": {**manifest["spec"], "paused": True}}


def _keep(
    house: Household,
    manifest: Manifest,
    live: ChildSeen,
    memory: Memory,
    agreed: dict[str, Agreed],
    now: datetime,
) -> tuple[Action, ...]:
    """Apply `manifest` over `live` if that could change anything; note what agrees."""
    whose = claim(house.queue, live)
    if whose.conflict or live.deleting:
        return ()
    wanted = marked(manifest)
    if whose.adopt:
        return (ApplyChild(manifest=wanted, reason=ADOPTED),)
    subject = subject_of_child(live.kind, live.name)
    digest = wanted["metadata"]["annotations"][APPLIED]
    before = memory.agreed.get(subject)
    # Not compared again: the same wish over the same version.
    if before is not None and (before.digest, before.version) == (digest, live.resource_version):
        agreed[subject] = before
        return ()
    if not has_drifted(wanted, live.live):
        agreed[subject] = Agreed(digest=digest, version=live.resource_version)
        return ()
    # Not applied again: the last apply of the same wish over the same content left it so. The server writes
    # something (a quantity, say) in another way than we do.
    content = _content(live.live)
    is_tried = before is not None and before.at is not None and now - before.at < APPLY_AGAIN
    if before is not None and is_tried and (before.digest, before.content) == (digest, content):
        agreed[subject] = before
        return ()
    agreed[subject] = Agreed(digest=digest, content=content, at=now)
    rolls = live.kind == "Deployment" and _hash(manifest) != _hash(live.live)
    return (ApplyChild(manifest=wanted, reason=TEMPLATE if rolls else DRIFT),)


def _hash(deployment: Manifest) -> Any:
    labels = deployment["spec"].get("template", {}).get("metadata", {}).get("labels") or {}
    return labels.get(LABEL_TEMPLATE_HASH)


def _content(live: Manifest) -> str:
    """A digest of what people and programs declare in an object, its status and its bookkeeping left out."""
    meta = live.get("metadata") or {}
    declared = [meta.get("labels"), meta.get("annotations"), meta.get("ownerReferences"), live.get("spec")]
    return hashlib.sha256(json.dumps(declared, sort_keys=True, default=str).encode()).hexdigest()


def _unblocked(
    house: Household, actions: tuple[Action, ...], memory: Memory, now: datetime
) -> tuple[Action, ...]:
    """Without what the API server refused a short while ago: the rest must not wait for it (OP-101)."""
    deployment = subject_of_child("Deployment", worker_name(house.queue.ref.name))
    if house.creating and memory.is_blocked(deployment, now):
        # A creation is its steps together, or nothing.
        actions = tuple(a for a in actions if not isinstance(a, Scale))
    return tuple(a for a in actions if not memory.is_blocked(subject_of(a), now))


# --- delete ------------------------------------------------------------------------------------------------


def garbage(house: Household) -> tuple[Action, ...]:
    """Objects of ours that are not declared any more; a Deployment only when its pods have drained (OP-079)."""
    declared = [house.declared.deployment, house.declared.pdb, house.declared.network_policy]
    names = {(m["kind"], m["metadata"]["name"]) for m in declared if m is not None}
    return tuple(
        DeleteChild(kind=child.kind, name=child.name, uid=child.uid, reason="not declared any more")
        for child in house.seen.children
        if claim(house.queue, child).ours
        and not child.deleting
        and (child.kind, child.name) not in names
        and not (child.kind == "Deployment" and (child.live.get("status") or {}).get("replicas"))
    )
