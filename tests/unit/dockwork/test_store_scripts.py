"""The scripts as text: headers are contracts, keys come from one place, includes add up."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files
from typing import Any

import pytest

from dockwork.core.keys import QueueKeys, QueueName
from dockwork.core.states import State
from dockwork.store import (
    action_calls,
    calls,
    cron_calls,
    event_calls,
    limit_calls,
    operator_calls,
    sealing_calls,
    views,
)
from dockwork.store.action_calls import Weight
from dockwork.store.calls import Call, Claimant
from dockwork.store.protocol import (
    EventOptions,
    Heartbeat,
    JobChange,
    JobKeys,
    Lease,
    NewJob,
    Outcome,
    Owner,
    OwnerRecord,
    Put,
    QueueConfig,
    Reseal,
    RevokeCause,
    Settlement,
)
from dockwork.store.scripts import BadInclude, expand, script, script_names

LUA = files("dockwork").joinpath("lua")
KEYS = QueueKeys(QueueName("shop", "mail"))
OWNER = Owner(pod="pod", boot="boot")
WHO = Claimant(OWNER, 1, 2, "run")
LEASE = Lease(job_id="a", epoch=7)
BEAT = Heartbeat(owner=str(OWNER), pod="pod", slots=1, busy=0)
JOB = NewJob(id="a", type="t", envelope=b"{}")

EXAMPLES: list[Call[Any]] = [
    calls.enqueue(KEYS, [JOB, JOB]),
    calls.enqueue(KEYS, [replace(JOB, keys=JobKeys(unique="ab", idempotency="cd", digest="ef"))]),
    calls.claim(KEYS, WHO),
    calls.settle(KEYS, WHO, [Settlement(lease=LEASE, outcome=Outcome.COMPLETED, result=b"1")]),
    calls.start(KEYS, [LEASE, LEASE]),
    calls.renew(KEYS, [LEASE, LEASE], BEAT, run_id="run"),
    calls.requeue(KEYS, [LEASE, LEASE], Put.FRONT, "drained"),
    calls.child_died(KEYS, [(LEASE, "signal 11"), (LEASE, "exit code 1")]),
    calls.progress(KEYS, LEASE, b"1"),
    calls.log(KEYS, LEASE, ["line"]),
    calls.checkpoint(KEYS, LEASE, b"1"),
    calls.register(KEYS, "hash", {"t": ("abc", b"{}"), "u": ("def", b"{}")}),
    calls.leave(KEYS, OWNER, BEAT),
    calls.promote(KEYS, ["a", "b"]),
    calls.reap(KEYS, run_id="run", lease_ms=0),
    calls.expire(KEYS),
    calls.trim(KEYS),
    operator_calls.configure(
        KEYS, QueueConfig(), OwnerRecord(operator="o", namespace="n", name="m", uid="u")
    ),
    operator_calls.sample(KEYS, run_id="run", horizon_ms=0),
    operator_calls.quiesce(KEYS, {"p": "t", "q": "t"}),
    operator_calls.unquiesce(KEYS, ["p", "q"]),
    operator_calls.revoke(KEYS, str(OWNER), RevokeCause.DIED, "exit", 0),
    operator_calls.cancel(KEYS, "a"),
    operator_calls.set_paused(KEYS, expected=False, wanted=True),
    sealing_calls.key_ids(KEYS),
    sealing_calls.sealed_schedules(KEYS, key="k1", types=["t"]),
    sealing_calls.reseal_schedule(KEYS, "uid", "d", "k1", b"{}"),
    sealing_calls.sealed(KEYS, State.READY, offset=0, key="k1", types=["t"]),
    sealing_calls.reseal(
        KEYS, [Reseal(id="a", digest="d", keys="ak1", envelope=b"{}"), Reseal(id="b", digest="d", keys="")]
    ),
    views.get(KEYS, "a"),
    views.list_jobs(KEYS, State.READY, 0, 5),
    views.stats(KEYS),
    limit_calls.set_closed(KEYS, expected=False, wanted=True),
    limit_calls.figures(KEYS, 60),
    action_calls.redrive(KEYS, [("a", "d"), ("b", "")]),
    action_calls.edit(KEYS, "a", 0, JobChange(priority=1)),
    action_calls.purge(KEYS, State.DEAD, None, ""),
    action_calls.obliterate(KEYS, "token"),
    action_calls.obliterate_end(KEYS, "token"),
    action_calls.repair(KEYS, ["a", "b"]),
    action_calls.repair_locks(KEYS, ["ab", "cd"]),
    action_calls.weigh(KEYS, ["a", "b"]),
    action_calls.recount(KEYS, Weight(b"mark", 1, 2, 3), {"k": 1}, {"z": 2}),
    action_calls.migrate(KEYS, 1),
    event_calls.set_events(KEYS, EventOptions()),
    event_calls.errors(KEYS, 5),
]

#: Written and tested beside schedules.
SCHEDULES = {"tick", "plan", "unplan", "cron_states", "refill", "suspend"}


def source(name: str) -> str:
    return LUA.joinpath(f"{name}.lua").read_text(encoding="utf-8")


def lua_files() -> Iterator[tuple[str, str]]:
    for folder in (LUA, LUA.joinpath("lib"), LUA.joinpath("flat")):
        for entry in folder.iterdir():
            if entry.name.endswith(".lua"):
                yield entry.name, entry.read_text(encoding="utf-8")


def test_every_script_has_a_call_here() -> None:
    assert {call.script for call in EXAMPLES} | SCHEDULES >= set(script_names())
    assert cron_calls


@pytest.mark.parametrize("name", script_names())
def test_a_scripts_keys_are_those_of_its_header_and_are_all_used(name: str) -> None:
    text = source(name)
    names = script(name).key_names
    table = re.search(r"^local K = \{(.*?)\}", text, re.MULTILINE | re.DOTALL)
    assert table is not None
    taken = re.findall(r"(\w+) = KEYS\[(\d+)\]", table.group(1))

    assert [key for key, _ in taken] == list(names)
    assert [int(number) for _, number in taken] == list(range(1, len(names) + 1))
    assert all(isinstance(getattr(KEYS, key), str) for key in names)
    assert names[0] == "meta"
    body = expand(name)
    by_state = {state.value for state in State} if "K[state]" in body else set()
    unused = [key for key in names if not re.search(rf"\bK\.{key}\b", body) and key not in by_state]
    assert unused == []


@pytest.mark.parametrize("name", script_names())
def test_a_script_is_given_every_key_that_its_includes_use(name: str) -> None:
    """But for branches that this script cannot take: the list is short and says why."""
    impossible = {
        # Nothing that these do ends or buries a job by type.
        ("requeue", "type_stats"), ("requeue", "dead"), ("requeue", "unique"),
        ("enqueue_keyed", "type_stats"), ("enqueue_keyed", "leased"), ("enqueue", "type_stats"), ("enqueue", "leased"),
        ("promote", "type_stats"), ("promote", "leased"), ("promote", "expiry"), ("promote", "delayed"),
        ("expire", "type_stats"), ("expire", "leased"), ("cancel", "type_stats"), ("cancel", "leased"),
        ("tick", "type_stats"), ("tick", "leased"), ("trim", "stats"),
        ("redrive", "type_stats"), ("redrive", "leased"), ("edit", "type_stats"), ("edit", "leased"),
        ("repair", "type_stats"), ("repair", "leased"),
        ("configure", "type_stats"), ("configure", "leased"), ("sample", "held_keys"), ("sample", "held_jobs"),
    }  # fmt: skip
    used = set(re.findall(r"\bK\.(\w+)\b", expand(name)))

    missing = {(name, key) for key in used - set(script(name).key_names)}
    assert missing <= impossible | {("reap", "delayed"), ("requeue", "delayed"), ("revoke", "delayed")}


@pytest.mark.parametrize("call", EXAMPLES, ids=lambda call: call.script)
def test_a_calls_arguments_are_those_of_its_scripts_header(call: Call[Any]) -> None:
    text = source(call.script)
    single = [int(number) for number in re.findall(r"^-- ARGV\[(\d+)\]\s", text, re.MULTILINE)]
    rest = re.search(r"^-- ARGV\[(\d+)\+\]\s+(.+)", text, re.MULTILINE)

    assert single == list(range(1, len(single) + 1))
    if rest is None:
        assert len(call.args) == len(single)
    else:
        assert int(rest.group(1)) == len(single) + 1
        assert len(call.args) > len(single)
        words = rest.group(2).split("  ")[0].split(", ")
        if not words[-1].endswith("..."):
            assert (len(call.args) - len(single)) % len(words) == 0


def test_only_one_include_forms_a_key() -> None:
    """A key is never put together with `..` where Redis is called, and no name of a key is spelled in Lua."""
    for name, text in lua_files():
        for number, line in enumerate(text.splitlines(), 1):
            key = re.search(r'redis\.p?call\("\w+",\s*([^,)]*)', line)
            assert key is None or ".." not in key.group(1), f"{name}:{number}: {line.strip()}"
            assert not re.search(r"\bkey\w* = .*\.\.", line), f"{name}:{number}: {line.strip()}"
            assert '"dw:' not in line, f"{name}:{number}"
    formed = [name for name, text in lua_files() if "prefix .. " in text]
    assert sorted(formed) == ["record_key.lua", "record_keys.lua"]


@pytest.mark.covers("RT-040")
def test_no_script_decodes_an_envelope() -> None:
    """Only the schedules' own entries are JSON to a script; a job's envelope never is."""
    for name, text in lua_files():
        for line in text.splitlines():
            if "cjson." in line:
                assert "envelope" not in line, name
                assert "schedule" in name or "tick" in name or "cron" in name or "plan" in name, name


@pytest.mark.covers("RT-062")
def test_no_script_scans_and_no_list_of_a_caller_is_unpacked_whole() -> None:
    for name, text in lua_files():
        assert not re.search(r'redis\.p?call\("(KEYS|SCAN|HSCAN|ZSCAN|SSCAN)"', text), name
        assert "unpack(ARGV" not in text, name
        assert "unpack(KEYS" not in text, name


def test_scripts_and_includes_stay_readable() -> None:
    def code_lines(text: str) -> int:
        return sum(bool(line.strip()) and not line.strip().startswith("--") for line in text.splitlines())

    # A flat text is one passage, read from top to bottom: in pieces it would be one again only where it is run.
    flat = {entry.name for entry in LUA.joinpath("flat").iterdir()}
    most = {name: 300 if name in flat else 80 for name, _ in lua_files()}
    long = {name: code_lines(text) for name, text in lua_files() if code_lines(text) > most[name]}
    assert long == {}


def read(files_: dict[str, str]) -> Any:
    return lambda path: files_[path]


def test_an_include_is_put_in_once_with_what_it_needs_and_is_made_when_it_is_called() -> None:
    text = expand(
        "main",
        read(
            {
                "main.lua": '-- why\n--- @include "b"\n--- @include "a"\nreturn b()\n',
                "lib/a.lua": "local function a()\n  return 1\nend\n",
                "lib/b.lua": '--- @include "a"\n-- doc\nlocal function b()\n  return a()\nend\n',
            }
        ),
    )

    assert text == (
        "local fn = {nil, nil}\nsetmetatable(fn, {__index = function(all, n)\nlocal made\n"
        "if n < 2 then\nmade = function()\n  return 1\nend\nelse\nmade = function()\n  return fn[1]()\nend\nend\n"
        "all[n] = made\nreturn made\nend})\nreturn fn[2]()\n"
    )


def test_a_script_with_a_flat_text_tries_that_first_and_forms_all_keys_but_the_first() -> None:
    files_ = {
        "main.lua": '-- KEYS[1]  meta   hash\n-- KEYS[2]  ready  zset\n--- @flat "main"\nreturn {KEYS[1], KEYS[2]}\n',
        "flat/main.lua": '--- @include "a"\nif a() then return general() end\nreturn KEYS[2]\n',
        "lib/a.lua": "-- doc\nlocal function a()\n  return 1\nend\n",
    }
    keys = "local key_head = string.sub(KEYS[1], 1, -5)\n"
    body = 'return {KEYS[1], (key_head .. "ready")}\n'

    assert expand("main", read(files_), flat=False) == keys + body
    assert expand("main", read(files_)) == (
        f"{keys}local function general()\n{body}end\nlocal function a()\n  return 1\nend\n"
        'if a() then return general() end\nreturn (key_head .. "ready")\n'
    )


def test_no_script_looks_for_an_include_by_its_name() -> None:
    """A name that is neither called nor given to pcall would be missed when calls are put in numbers."""
    folder = LUA.joinpath("lib").iterdir()
    names = "|".join(entry.name.removesuffix(".lua") for entry in folder)
    for name in script_names():
        text = expand(name, flat=False)
        assert not re.search(rf"(?<![\w.:\"])(?:{names})\(", text), name
        assert not re.search(r"(?<!redis\.)\bpcall\((?!fn\[)", text), name


def test_a_cycle_of_includes_is_named() -> None:
    files_ = {
        "main.lua": '--- @include "a"\n',
        "lib/a.lua": '--- @include "b"\nlocal function a() end\n',
        "lib/b.lua": '--- @include "a"\nlocal function b() end\n',
    }
    with pytest.raises(BadInclude, match="main: include cycle a -> b -> a"):
        expand("main", read(files_))


def test_an_include_that_defines_something_else_is_refused() -> None:
    files_ = {"main.lua": '--- @include "a"\n', "lib/a.lua": "local function other() end\n"}
    with pytest.raises(BadInclude, match=r"lib/a.lua must define `local function a` once"):
        expand("main", read(files_))
