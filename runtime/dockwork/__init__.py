"""Background jobs on Redis: enqueue from any process, run in workers, lose nothing."""

__version__ = "0.1.0.dev0"
