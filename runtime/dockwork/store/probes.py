"""What a login may not do: each command that we send is tried once, on keys that do not exist.

A server judges the login before the arguments, so most are sent with arguments that it then refuses. Asking by
``ACL DRYRUN`` would need a right that few logins have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from dockwork.core.keys import WAKE_CHANNEL_PREFIX, QueueKeys, queues_key
from dockwork.errors import AccessDenied, ScriptFailed
from dockwork.store.calls import Arg
from dockwork.store.connections import Asks
from dockwork.store.connectors import Connector
from dockwork.store.listening import first_message
from dockwork.store.protocol import Refusal

#: Command -> arguments behind the key. None of them stores anything where the key does not exist, or the server
#: refuses them for their number or their kind.
ON_A_KEY: dict[str, Sequence[Arg]] = {
    "BLPOP": ("0.01",),
    "BZPOPMIN": ("0.01",),
    "DEL": (),
    "EXISTS": (),
    "GET": (),
    "HDEL": ("f",),
    "HEXISTS": ("f",),
    "HGET": ("f",),
    "HGETALL": (),
    "HINCRBY": ("f", "no number"),
    "HKEYS": (),
    "HLEN": (),
    "HMGET": ("f",),
    "HSET": ("f", "v", "no value"),
    "HSETNX": ("f", "v"),
    "HSTRLEN": ("f",),
    "LPUSH": ("v",),
    "LRANGE": (0, 0),
    "LTRIM": (0, 0),
    "MGET": (),
    "PEXPIRE": (1,),
    "PTTL": (),
    "RPUSH": ("v",),
    "SET": ("v", "XX"),
    "UNLINK": (),
    "XADD": ("NOMKSTREAM", "*", "f", "v"),
    "XLEN": (),
    "XRANGE": ("-", "+", "COUNT", 1),
    "XREVRANGE": ("-", "+", "COUNT", 1),
    "XTRIM": ("MAXLEN", 0),
    "ZADD": ("no number", "m"),
    "ZCARD": (),
    "ZCOUNT": (0, 0),
    "ZLEXCOUNT": ("-", "+"),
    "ZRANGE": (0, 0),
    "ZRANGEBYLEX": ("-", "+"),
    "ZRANGEBYSCORE": (0, 0),
    "ZREM": ("m",),
    "ZREMRANGEBYLEX": ("-", "+"),
    "ZREMRANGEBYRANK": (0, 0),
    "ZREMRANGEBYSCORE": (0, 0),
    "ZREVRANGE": (0, 0),
    "ZREVRANGEBYSCORE": (0, 0),
    "ZSCAN": (0,),
    "ZSCORE": ("m",),
}

#: The same for commands whose key is not the first word, or that have none. {key} is the key.
OTHERS: dict[str, Sequence[Arg]] = {
    "EVALSHA": ("0" * 40, 1, "{key}"),
    "INFO": ("memory",),
    "MEMORY": ("USAGE", "{key}"),
    "MSET": ("{key}", "v", "{key}"),
    "PING": (),
    "SCAN": (0, "MATCH", "{key}", "COUNT", 1),
    "SCRIPT": ("LOAD", "return 1"),
    "TIME": (),
    "WAIT": (0, 1),
    "XREAD": ("COUNT", 1, "STREAMS", "{key}", "0"),
}

#: What a command is for that not every process needs; every other one is needed for all work.
ONLY_FOR = {
    "SCAN": "obliterate, repair and the counts of doctor",
    "ZSCAN": "repair",
    "WAIT": "replicas=",
    "PUBLISH": "waking a queue that has no workers, and events in mode pubsub",
    "SUBSCRIBE": "following events in mode pubsub",
}


async def refusals(wire: Asks, keys: QueueKeys, connector: Connector) -> list[Refusal]:
    """What the login may not do with a queue of these keys, which nobody uses. Leaves nothing behind."""
    found: dict[tuple[str, str], Refusal] = {}

    def note(refusal: Refusal | None) -> None:
        if refusal is not None:
            found.setdefault((refusal.kind, refusal.name), refusal)

    key, namespace = keys.prefix + "probe", keys.name.namespace
    of_keys = f"dw:{{{namespace}/*"
    for command, args in ON_A_KEY.items():
        # Their own keys: one that is made by LPUSH must not be of the wrong type for the next.
        own = f"{key}:{command}"
        note(await _try(wire, command, (own, *args), of_keys))
    for command in ("LPUSH", "RPUSH", "HSETNX"):
        await _try(wire, "UNLINK", (f"{key}:{command}",), "")
    for command, args in OTHERS.items():
        note(await _try(wire, command, [key if arg == "{key}" else arg for arg in args], of_keys))
    registry = queues_key(namespace)
    note(await _try(wire, "HKEYS", (registry,), registry))
    for channel, pattern in (
        (keys.wake_channel, f"{WAKE_CHANNEL_PREFIX}{{{namespace}/*"),
        (keys.events, of_keys),
    ):
        note(await _try(wire, "PUBLISH", (channel, ""), pattern))
    try:
        await asyncio.wait_for(first_message(connector, "SUBSCRIBE", keys.events), 5)
    except AccessDenied:
        # A subscription is refused without the server's words: it may be the command or the channel.
        note(Refusal("command", f"SUBSCRIBE {of_keys}", ONLY_FOR["SUBSCRIBE"]))
    return list(found.values())


async def _try(wire: Asks, command: str, args: Sequence[Arg], pattern: str) -> Refusal | None:
    try:
        await wire.ask(command, *args)
    except AccessDenied as error:
        return _refusal(command, str(error), pattern)
    except ScriptFailed:
        return None  # it was the arguments
    return None


def _refusal(command: str, words: str, pattern: str) -> Refusal:
    """What the server's words mean. `pattern`: of the keys or channels that were touched."""
    lowered = words.lower().partition(": the login may not do this: ")[2] or words.lower()
    purpose = ONLY_FOR.get(command, "")
    if "channel" in lowered:
        return Refusal("channel", pattern, purpose)
    if "access a key" in lowered or "one of the keys" in lowered:
        return Refusal("keys", pattern, purpose)
    return Refusal("command", command, purpose)
