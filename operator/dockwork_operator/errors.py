"""What can go wrong between the operator and the API server, as values that a reconcile can act on.

Only `kube/` raises the `KubeError` family; foreign exceptions are chained, never passed on.
"""

from __future__ import annotations

from dockwork.errors import DockworkError


class OperatorError(DockworkError):
    """Something in the operator refused or failed."""


class ConfigurationError(OperatorError):
    """The operator's own settings, its login or its access do not allow it to start."""


class KubeError(OperatorError):
    """A request to the API server did not do what was asked.

    verb, resource    as RBAC names them, such as ``patch`` and ``deployments.apps/scale``
    where             ``namespace/name`` or a part of it
    status            HTTP status, 0 when there was no answer
    """

    def __init__(self, message: str, *, verb: str, resource: str, where: str = "", status: int = 0) -> None:
        self.verb = verb
        self.resource = resource
        self.where = where
        self.status = status
        self.words = message
        super().__init__(f"{verb} {resource} {where}: {message}".replace("  ", " "))


class NotFound(KubeError):
    """404: the object, its namespace or its kind is not there."""


class Conflict(KubeError):
    """409: someone else wrote first, or the name is taken."""


class Gone(KubeError):
    """410: the resource version is too old to go on from."""


class Forbidden(KubeError):
    """403: the operator may not do this; its role lacks the verb."""


class Rejected(KubeError):
    """400, 413, 422, or an admission or quota refusal: the API server will not take this object."""


class Busy(KubeError):
    """401, 429 or 5xx: to be asked again.

    retry_after      seconds that the server asked for, 0 when it did not
    """

    def __init__(
        self,
        message: str,
        *,
        verb: str,
        resource: str,
        where: str = "",
        status: int = 0,
        retry_after: float = 0.0,
    ) -> None:
        self.retry_after = retry_after
        super().__init__(message, verb=verb, resource=resource, where=where, status=status)


class Unreachable(KubeError):
    """No answer: connection refused or lost, or the time limit was reached."""


class NotLeading(OperatorError):
    """A write was refused by our own guard: the Lease is not ours, or was not renewed lately."""
