"""Programs from Go modules, running programs, and the verbs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bed import programs
from bed.cli import main
from bed.errors import BedError
from bed.places import ROOT
from bed.programs import GO_MODULES, PROGRAMS, built, chains, program_path
from bed.shell import run, succeeds
from bed.waits import wait_until


def test_every_program_has_a_module_with_exact_versions() -> None:
    for program in PROGRAMS.values():
        module = GO_MODULES / program.module
        text = (module / "go.mod").read_text()
        assert text.startswith(f"module dockwork.dev/bed/{program.module}\n"), program.name
        if "require" in text:
            assert (module / "go.sum").stat().st_size > 0, program.name


def test_the_modules_give_kubernetes_its_staging_parts_in_the_matching_version() -> None:
    text = (GO_MODULES / "kubernetes" / "go.mod").read_text()
    assert f"k8s.io/kubernetes {programs.KUBERNETES}" in text
    replaced = re.findall(r"=> k8s\.io/\S+ (v\S+)", text)
    assert set(replaced) == {programs.KUBERNETES.replace("v1.", "v0.")}


def a_go(folder: Path, script: str) -> None:
    """A `go` that counts its calls, then does what `script` says with $target."""
    go = folder / "go"
    go.write_text(
        f'#!/bin/sh\necho call >>"{folder}/calls"\n'
        'while [ "$1" != -o ]; do shift; done\ntarget=$2\n' + script + "\n"
    )
    go.chmod(0o755)


def test_a_program_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_go(tmp_path, 'echo built >"$target"')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    cache = tmp_path / "cache"

    first = built(["pause"], cache)
    second = built(["pause"], cache)

    assert first == second == {"pause": program_path("pause", cache)}
    assert first["pause"].read_text() == "built\n"
    assert (tmp_path / "calls").read_text() == "call\n"


def test_programs_are_built_in_two_rows_that_keep_their_order() -> None:
    assert chains(list(PROGRAMS)) == [
        [
            *("kube-apiserver", "kubectl", "kubelet", "kube-controller-manager", "kube-scheduler"),
            *("kube-proxy", "kubeadm"),
        ],
        ["etcd", "coredns", "local-path-provisioner", "pause", "kind", "helm"],
    ]
    assert chains(["helm"]) == [["helm"]]


def test_a_build_that_fails_says_the_compilers_last_words_and_leaves_nothing_half_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_go(tmp_path, 'echo half >"$target"; echo "main.go:1: oh" >&2; exit 3')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(BedError, match=r"exit 3(.|\n)*main\.go:1: oh"):
        built(["pause"], tmp_path / "cache")
    assert not program_path("pause", tmp_path / "cache").exists()
    a_go(tmp_path, 'echo whole >"$target"')
    assert built(["pause"], tmp_path / "cache")["pause"].read_text() == "whole\n"


def test_without_go_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BedError, match=r"go: not found(.|\n)*remedy: install Go 1.26"):
        built(["pause"], tmp_path / "cache")


def test_a_failing_command_is_told_with_its_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(BedError, match=r"exit 4 \(all of it: .*\)\n    \| wrong\n  remedy: do it right"):
        run(["sh", "-c", "echo fine; echo wrong >&2; exit 4"], log=log, remedy="do it right")
    assert "fine\nwrong\nexit 4" in log.read_text()


def test_a_missing_command_is_told_by_its_name() -> None:
    with pytest.raises(BedError, match=r"no-such-program: not found\n  remedy: install no-such-program"):
        run(["no-such-program"])
    assert not succeeds(["no-such-program"])
    assert not succeeds(["sleep", "60"], seconds=0.05)


def test_waiting_ends_at_the_deadline_with_the_last_error() -> None:
    def never() -> bool:
        raise BedError("still closed")

    with pytest.raises(BedError, match=r"not within 0 s: the door opens\nstill closed\n  remedy: knock"):
        wait_until(never, seconds=0.01, every=0.005, what="the door opens", remedy="knock")


def test_the_bed_starts_without_any_package(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", ROOT / "tests" / "bed", "status"],
        env={"DOCKWORK_CACHE": str(tmp_path), "DOCKWORK_BED": "none", "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, "bed none: no cluster\n", "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["env"], "the bed 'none' has no cluster"),
        (["load", "x:1"], "remedy: make cluster"),
        (["build", "runtime", "--build-arg", "novalue"], "--build-arg: expected NAME=VALUE, got 'novalue'"),
        (["binaries", "cube"], "expected programs of kube-apiserver"),
    ],
)
def test_a_verb_that_cannot_be_done_says_why(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    words: str,
) -> None:
    monkeypatch.setenv("DOCKWORK_CACHE", str(tmp_path))
    monkeypatch.setenv("DOCKWORK_BED", "none")
    assert main(arguments) == 1
    assert words in capsys.readouterr().err


def test_binaries_prints_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    a_go(tmp_path, 'echo built >"$target"')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("DOCKWORK_CACHE", str(tmp_path / "cache"))
    assert main(["binaries", "pause"]) == 0
    assert Path(capsys.readouterr().out.strip()).read_text() == "built\n"
