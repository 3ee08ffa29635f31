"""A condition as the Kubernetes API conventions have it (metav1.Condition)."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from dockwork_operator.models.fields import ApiModel, Cut, Instant, Many, OneOf, Text, Whole

Status = Literal["True", "False", "Unknown"]


class StatusCondition(ApiModel):
    """One aspect of the object's state."""

    type: Annotated[str, Text(1, 316, r"^[A-Za-z]([-A-Za-z0-9_.]*[A-Za-z0-9])?$", "a condition type")]
    """What is said, in CamelCase."""
    status: Annotated[Status, OneOf(("True", "False", "Unknown"))]
    """Whether it holds."""
    observed_generation: Annotated[int, Whole(0, 2**53, wide=True)] = 0
    """The metadata.generation that this was said of."""
    last_transition_time: Annotated[datetime, Instant()]
    """When status changed last."""
    reason: Annotated[str, Text(1, 64, r"^[A-Za-z][A-Za-z0-9]*$", "a reason in CamelCase")]
    """Why, in one word that programs may read."""
    message: Annotated[str, Cut(most=4096)] = ""
    """Why, in a sentence."""


ConditionList = Annotated[tuple[StatusCondition, ...], Many(16, key="type")]
