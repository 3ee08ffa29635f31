"""``dockwork quiesce``: let workers finish what they have and take nothing new, for as long as the command runs."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable, Sequence
from datetime import timedelta

import click

from dockwork import clock
from dockwork.app import App
from dockwork.cli.apps import plain_app
from dockwork.cli.options import SpanType, namespace_option, output_option, queue_argument, with_app
from dockwork.core.keys import QueueName
from dockwork.store.protocol import Heartbeat

#: A request holds for 60 s, so that a command that was killed leaves nothing behind.
RENEW_S = 20.0
LOOK_S = 0.5


@click.command()
@queue_argument
@click.argument("names", nargs=-1, required=True, metavar="WORKER...")
@click.option(
    "--for", "span", type=SpanType(), default=None, help="Let them work again after so long. Default: Ctrl-C."
)
@click.option("--until-idle", is_flag=True, help="End when the last of their jobs has ended.")
@namespace_option
@output_option
def quiesce(
    queue: str,
    names: tuple[str, ...],
    span: timedelta | None,
    until_idle: bool,
    namespace: str | None,
    output: str,
) -> None:
    """Ask WORKERs of QUEUE to finish what they run and to take nothing new, for as long as this runs.

    WORKER is a pod's name or an owner, as `dockwork workers` shows them. At the end they take jobs again. With
    -o json each step is a line.
    """
    app = plain_app(namespace)

    def tell(event: str, words: str, **facts: int) -> None:
        click.echo(json.dumps({"event": event, **facts}) if output == "json" else words)

    name = QueueName(app.settings.namespace, queue)
    with_app(app, lambda: _hold(app, name, names, span, until_idle, tell), on=[queue])


async def _hold(
    app: App,
    queue: QueueName,
    names: Sequence[str],
    span: timedelta | None,
    until_idle: bool,
    tell: Callable[..., None],
) -> None:
    store = app.client.store
    pods = _pods(names, (await store.sample(queue, horizon_ms=0)).workers)
    token = secrets.token_hex(8)
    began = asked = clock.monotonic()
    heard = False
    await store.quiesce(queue, dict.fromkeys(pods, token))
    try:
        while span is None or clock.monotonic() - began < span.total_seconds():
            if clock.monotonic() - asked >= RENEW_S:
                await store.quiesce(queue, dict.fromkeys(pods, token))
                asked = clock.monotonic()
            sample = await store.sample(queue, horizon_ms=0)
            left = sum(sample.leased.get(pod, 0) for pod in pods)
            if not heard and pods <= {beat.pod for beat in sample.workers if beat.quiesce_token == token}:
                heard = True
                tell("quiesced", f"they take nothing new; {left} of their jobs still run", left=left)
            if heard and not left and until_idle:
                tell("idle", "the last of their jobs has ended")
                return
            await asyncio.sleep(LOOK_S)
    finally:
        await store.unquiesce(queue, sorted(pods))
        tell("resumed", "they take jobs again")


def _pods(names: Sequence[str], beats: Sequence[Heartbeat]) -> set[str]:
    """Pod UIDs of the workers that are meant. Raises click.UsageError naming one that is not there."""
    pods = set()
    for name in names:
        meant = {beat.pod for beat in beats if name in (beat.pod_name, beat.pod, beat.owner)}
        if not meant:
            known = ", ".join(sorted(beat.pod_name or beat.owner for beat in beats)) or "none"
            raise click.UsageError(f"WORKER: expected one that works on this queue ({known}); got {name}")
        pods |= meant
    return pods
