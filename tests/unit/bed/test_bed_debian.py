"""What is read of a Debian host, and what its small scripts do."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from bed.debian import host_mirror, is_debian, strip
from bed.engines import CAP_SYS_RESOURCE, WRAPPER, firewall_removals, lacks_capability
from bed.errors import BedError

DEB822 = """\
Types: deb
URIs: http://security.example/debian-security
Suites: bookworm-security
Components: main

Types: deb
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main
"""


def test_the_mirror_comes_from_the_hosts_own_sources() -> None:
    assert host_mirror(["", DEB822]) == "http://mirror.example/debian"
    line = "# a comment\ndeb [signed-by=/x.gpg] http://old.example/debian bookworm main\n"
    assert host_mirror([line]) == "http://old.example/debian"


def test_a_host_without_the_suite_is_told_what_to_add() -> None:
    with pytest.raises(BedError, match="no apt source of this host names the suite bookworm"):
        host_mirror(["deb http://mirror.example/debian trixie main\n"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('ID=debian\nVERSION_CODENAME=bookworm\nVERSION_ID="12"\n', True),
        ("ID=debian\nVERSION_CODENAME=trixie\n", False),
        ('ID=ubuntu\nID_LIKE=debian\nVERSION_CODENAME="noble"\n', False),
        ("", False),
    ],
)
def test_only_debian_12_itself_counts(text: str, expected: bool) -> None:
    assert is_debian(text) is expected


def test_stripping_keeps_programs_and_removes_what_nobody_reads(tmp_path: Path) -> None:
    for name in ("usr/share/doc/bash/copyright", "usr/share/man/man1/ls.1", "var/log/dpkg.log", "usr/bin/ls"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "machine-id").write_text("this machine")

    strip(tmp_path)

    files = {str(f.relative_to(tmp_path)) for f in tmp_path.rglob("*") if f.is_file()}
    assert files == {"usr/bin/ls", "etc/machine-id"}
    assert (tmp_path / "etc" / "machine-id").read_text() == ""


def test_a_capability_is_looked_up_in_the_bounding_set() -> None:
    assert lacks_capability("CapEff:\t000001ffffffffff\nCapBnd:\t000001fffeffffff\n", CAP_SYS_RESOURCE)
    assert not lacks_capability("CapBnd:\t000001ffffffffff\n", CAP_SYS_RESOURCE)


def test_dockers_chains_are_removed_after_the_jumps_into_them() -> None:
    rules = [
        "-P FORWARD ACCEPT",
        "-N DOCKER",
        "-N DOCKER-USER",
        "-N MINE",
        "-A FORWARD -j DOCKER-USER",
        "-A FORWARD -o br-1 -j DOCKER",
        "-A FORWARD -j MINE",
        "-A DOCKER-USER -j RETURN",
    ]
    assert firewall_removals(rules) == [
        ["-D", "FORWARD", "-j", "DOCKER-USER"],
        ["-D", "FORWARD", "-o", "br-1", "-j", "DOCKER"],
        ["-F", "DOCKER"],
        ["-F", "DOCKER-USER"],
        ["-X", "DOCKER"],
        ["-X", "DOCKER-USER"],
    ]


CONFIG = {
    "process": {
        "args": ["x"],
        "capabilities": {
            "bounding": ["CAP_CHOWN", "CAP_SYS_RESOURCE", "CAP_SYS_TIME"],
            "effective": ["CAP_SYS_RESOURCE"],
        },
        "oomScoreAdj": -999,
        "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 9, "soft": 9}],
        "noNewPrivileges": True,
    }
}
MODEST = {
    "process": {
        "args": ["x"],
        "capabilities": {"bounding": ["CAP_CHOWN", "CAP_SYS_TIME"], "effective": []},
        "oomScoreAdj": 0,
        "noNewPrivileges": True,
    }
}


@pytest.mark.parametrize(
    ("arguments", "file", "changed"),
    [
        (["--root", "/r", "create", "--bundle", "BUNDLE", "--pid-file", "p", "id"], "config.json", True),
        (["--root=/r", "run", "--bundle=BUNDLE", "id"], "config.json", True),
        (["--log", "/l", "exec", "--process", "BUNDLE/process.json", "id"], "process.json", True),
        (["--root", "/r", "start", "id"], "config.json", False),
        (["--root", "/r", "delete", "--force", "id"], "config.json", False),
    ],
)
def test_the_runtime_wrapper_takes_away_what_the_host_cannot_give(
    tmp_path: Path, arguments: list[str], file: str, changed: bool
) -> None:
    runc = tmp_path / "runc"
    runc.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\nexit 7\n')
    runc.chmod(0o755)
    (tmp_path / file).write_text(json.dumps(CONFIG, separators=(",", ":")))
    words = [word.replace("BUNDLE", str(tmp_path)) for word in arguments]

    environ = {"PATH": os.environ["PATH"], "DOCKWORK_RUNC": str(runc)}
    done = subprocess.run([WRAPPER, *words], env=environ, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout.splitlines()) == (7, words)
    assert json.loads((tmp_path / file).read_text()) == (MODEST if changed else CONFIG)
