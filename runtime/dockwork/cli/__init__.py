"""The command ``dockwork``: one file per command, loaded when it is called."""

from __future__ import annotations

import builtins
import importlib
from typing import Any

import click
from click.shell_completion import CompletionItem

from dockwork.cli.importing import collector_at_rest
from dockwork.version import __version__

#: Command -> (module, the first line of its help).
COMMANDS = {
    "bench": ("dockwork.cli.bench", "Measure this machine and this Redis."),
    "cancel": ("dockwork.cli.act_on_jobs", "Ask jobs not to run, or to stop."),
    "close": ("dockwork.cli.act_on_queues", "Refuse new jobs on a queue."),
    "completion": ("dockwork.cli.completion", "Print the script that lets a shell complete words."),
    "dev": ("dockwork.cli.dev", "Run an app with a server of its own, reloading on changes."),
    "doctor": ("dockwork.cli.doctor", "Say what is wrong with Redis, the login and the queues."),
    "edit": ("dockwork.cli.act_on_jobs", "Change a job that waits."),
    "enqueue": ("dockwork.cli.enqueue", "Store one job."),
    "errors": ("dockwork.cli.look", "Show the last failed runs."),
    "events": ("dockwork.cli.look", "Follow what happens in a queue."),
    "jobs": ("dockwork.cli.jobs", "Show the jobs of a queue, or one job."),
    "keys": ("dockwork.cli.seals", "Count the jobs that each encryption key seals."),
    "migrate": ("dockwork.cli.act_on_queues", "Raise the version of a queue's stored data."),
    "obliterate": ("dockwork.cli.act_on_queues", "Delete a queue with everything in it."),
    "open": ("dockwork.cli.act_on_queues", "Take new jobs on a queue again."),
    "pause": ("dockwork.cli.act_on_queues", "Let no worker take a job of a queue."),
    "promote": ("dockwork.cli.act_on_jobs", "Make delayed jobs due now."),
    "purge": ("dockwork.cli.act_on_queues", "Delete the records of ended jobs."),
    "queues": ("dockwork.cli.queues", "Show the queues of a namespace."),
    "quiesce": ("dockwork.cli.quiesce", "Let workers finish what they have and take nothing new."),
    "reap": ("dockwork.cli.act_on_queues", "Take back jobs whose lease is over."),
    "redrive": ("dockwork.cli.act_on_jobs", "Put ended jobs back, after a look at which."),
    "repair": ("dockwork.cli.act_on_queues", "Put right what is wrong in a queue's data."),
    "reseal": ("dockwork.cli.seals", "Seal values anew with the current key."),
    "resume": ("dockwork.cli.act_on_queues", "Let workers take jobs of a queue again."),
    "retry": ("dockwork.cli.act_on_jobs", "Let jobs run again now."),
    "schedules": ("dockwork.cli.schedules", "Show what ticks, and when next; pause or remove one."),
    "stats": ("dockwork.cli.look", "Show the figures of a queue."),
    "worker": ("dockwork.cli.worker", "Run an app's jobs until told to stop."),
    "workers": ("dockwork.cli.look", "Show the workers and what they do."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called: a worker starts without the others' parts."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        with collector_at_rest():
            module = importlib.import_module(COMMANDS[name][0])
        command: click.Command = getattr(module, f"{name}_" if name in dir(builtins) else name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, words) for name, (_, words) in sorted(COMMANDS.items())])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands' names, without importing any of them: the Tab key should not wait."""
        found = [
            CompletionItem(name, help=words)
            for name, (_, words) in sorted(COMMANDS.items())
            if name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def invoke(self, ctx: click.Context) -> Any:
        from dockwork.cli.exits import telling

        with telling():
            return super().invoke(ctx)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="dockwork")
def main() -> None:
    """Background jobs on Redis.

    Redis is found by DOCKWORK_REDIS_URL_FILE, DOCKWORK_REDIS_URL or REDIS_URL, the namespace by
    DOCKWORK_NAMESPACE. Exit codes: 0 done, 1 refused, 2 wrong usage, 5 outcome unknown.
    """
