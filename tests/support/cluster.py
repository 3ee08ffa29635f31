"""A cluster as a person uses it: kubectl and helm as programs, port-forwards, and questions about pods.

The kubeconfig is the bed's own file, or the one in DOCKWORK_TEST_KUBECONFIG if its context is on the allow-list:
never the current context of whoever runs the tests.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bed.kubeconfigs import kubeconfig_for_tests
from bed.programs import program_path

ROOT = Path(__file__).resolve().parents[2]


class CommandFailed(AssertionError):
    """A program ended with an error; the message has its output."""


def run(*command: str | Path, input: str | None = None, check: bool = True, timeout: float = 120) -> str:
    """Standard output of `command`; CommandFailed with both outputs if it failed and `check` is set."""
    done = subprocess.run(
        [str(part) for part in command],
        input=input,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    if check and done.returncode != 0:
        raise CommandFailed(
            f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        )
    return done.stdout


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    """One cluster, by its kubeconfig file."""

    kubeconfig: Path

    @classmethod
    def of_bed(cls) -> Cluster:
        """The bed's cluster, or the one that DOCKWORK_TEST_KUBECONFIG names."""
        return cls(kubeconfig=kubeconfig_for_tests())

    def kubectl(
        self, *args: str | Path, input: str | None = None, check: bool = True, timeout: float = 120
    ) -> str:
        return run(
            program_path("kubectl"),
            "--kubeconfig",
            self.kubeconfig,
            *args,
            input=input,
            check=check,
            timeout=timeout,
        )

    def helm(self, *args: str | Path, timeout: float = 240) -> str:
        return run(program_path("helm"), "--kubeconfig", self.kubeconfig, *args, timeout=timeout)

    def get(self, kind: str, name: str = "", *, namespace: str, selector: str = "") -> dict[str, Any]:
        """The object, or the list; an empty dict if it does not exist."""
        args = ["get", kind, *([name] if name else []), "-n", namespace, "-o", "json", "--ignore-not-found"]
        if selector:
            args += ["-l", selector]
        text = self.kubectl(*args)
        found: dict[str, Any] = json.loads(text) if text.strip() else {}
        return found

    def items(self, kind: str, *, namespace: str, selector: str = "") -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get(kind, namespace=namespace, selector=selector).get("items", [])
        return found

    def apply(self, manifest: str | Path | Mapping[str, Any], *, namespace: str | None = None) -> str:
        """Apply a file, a text, or an object."""
        where = ["-n", namespace] if namespace else []
        if isinstance(manifest, Path):
            return self.kubectl("apply", *where, "-f", manifest)
        text = manifest if isinstance(manifest, str) else json.dumps(manifest)
        return self.kubectl("apply", *where, "-f", "-", input=text)

    def namespace(self, name: str) -> None:
        """Make `name`, with the restricted Pod Security profile enforced."""
        self.apply(
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": name, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
            }
        )

    def secret(self, name: str, key: str, *, namespace: str) -> str:
        """One value of a Secret, decoded."""
        import base64

        found = self.get("secret", name, namespace=namespace)
        return base64.b64decode(found["data"][key]).decode()

    @contextmanager
    def port_forward(self, target: str, port: int, *, namespace: str) -> Iterator[int]:
        """A free local port that leads to `target` (``svc/x``, ``pod/y``) while the block runs."""
        process = subprocess.Popen(
            [
                str(program_path("kubectl")), "--kubeconfig", str(self.kubeconfig), "-n", namespace,
                "port-forward", target, f":{port}", "--address", "127.0.0.1",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )  # fmt: skip
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            match = re.search(r"127\.0\.0\.1:(\d+) ->", line)
            if match is None:
                raise CommandFailed(f"port-forward to {namespace}/{target}: {line}")
            yield int(match.group(1))
        finally:
            process.terminate()
            process.wait(timeout=10)
            assert process.stdout is not None
            process.stdout.close()

    def pods(self, *, namespace: str, selector: str) -> list[dict[str, Any]]:
        return self.items("pods", namespace=namespace, selector=selector)

    def condition(self, kind: str, name: str, type_: str, *, namespace: str) -> dict[str, Any]:
        """One condition of an object's status, or an empty dict."""
        for found in self.get(kind, name, namespace=namespace).get("status", {}).get("conditions", []):
            if found["type"] == type_:
                return dict(found)
        return {}
