"""An app whose job type seals its argument and runs in a process of its own."""

from __future__ import annotations

import os
from typing import Any

from dockwork import App, Backoff, Context, Encrypted

app = App("sealed")


@app.job(queue="mail", isolation="process", retries=1, backoff=Backoff.fixed(0.01))
def charge(ctx: Context, card: Encrypted[str]) -> Encrypted[list[Any]]:
    """Fails once, with all that a run may leave behind; then returns what it got."""
    if ctx.saved is None:
        ctx.sync.checkpoint({"card": card})
        ctx.sync.progress(f"charging {card}")
        ctx.log(f"charging {card}")
        raise ValueError(f"declined: {card}")
    return [card, os.getpid(), ctx.saved]
