"""What `helm test` does: applies a Queue, runs one job through it, waits for no pods, and removes the Queue.

It runs in a namespace that the operator watches, as an account that may handle Queues and see pods there. Each step is
printed with the seconds it took; the exit code is 0, or 1 with the step that failed and what was seen last.
"""

import asyncio
import json
import os
import secrets
import ssl
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
STEP_SECONDS = float(os.environ.get("SELFTEST_STEP_SECONDS", "240"))


class Failed(Exception):
    """A step did not come to its end."""


def call(method, path, body=None):
    """The JSON answer of the API server; None for 404."""
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    if ":" in host:
        host = f"[{host}]"
    request = urllib.request.Request(
        f"https://{host}:{port}{path}",
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {(ACCOUNT / 'token').read_text()}", "Content-Type": "application/json"},
    )
    context = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    try:
        with urllib.request.urlopen(request, timeout=10, context=context) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise Failed(f"{method} {path}: {error.code} {error.read().decode(errors='replace')[:500]}") from None


def manifest(name):
    """The Queue of this test: its app comes from a ConfigMap, so any runtime image will do."""
    template = {
        "spec": {
            "containers": [{"name": "worker", "volumeMounts": [{"name": "app", "mountPath": "/selftest"}]}],
            "volumes": [{"name": "app", "configMap": {"name": os.environ["SELFTEST_CONFIG_MAP"]}}],
        }
    }
    if os.environ.get("SELFTEST_PULL_SECRETS"):
        template["spec"]["imagePullSecrets"] = json.loads(os.environ["SELFTEST_PULL_SECRETS"])
    return {
        "apiVersion": "dockwork.dev/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/component": "selftest"}},
        "spec": {
            "worker": {
                "image": os.environ["SELFTEST_IMAGE"],
                "app": "selftest_app:app",
                "slots": 1,
                "minReadySeconds": 0,
                "env": [{"name": "PYTHONPATH", "value": "/selftest"}],
                "podTemplate": template,
            },
            "jobs": {"timeout": "10s"},
            "scaling": {"maxReplicas": 1},
            "pdb": {"mode": "None"},
        },
    }


def say(started, text):
    print(f"{time.monotonic() - started:6.1f} s  {text}", flush=True)


def wait_for(what, ask):
    """The first true first part of `ask()`; Failed with its second part when the time is over."""
    deadline = time.monotonic() + STEP_SECONDS
    while True:
        answer, seen = ask()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise Failed(f"{what}: not within {STEP_SECONDS:.0f} s; last seen: {seen}")
        time.sleep(0.5)


def conditions_of(queue):
    held = ((queue or {}).get("status") or {}).get("conditions") or []
    return ", ".join(f"{c['type']}={c['status']} {c['reason']} {c.get('message', '')}".strip() for c in held) or "none"


def is_accepted(path):
    queue = call("GET", path)
    held = ((queue or {}).get("status") or {}).get("conditions") or []
    return any(c["type"] == "Accepted" and c["status"] == "True" for c in held), f"conditions: {conditions_of(queue)}"


async def run_job(queue):
    """One job from enqueue to its result."""
    from selftest_app import app, double

    try:
        ref = await double.options(queue=queue).enqueue(number=21)
        try:
            return await ref.result(timeout=STEP_SECONDS)
        except TimeoutError:
            raise Failed(f"the job was not done within {STEP_SECONDS:.0f} s: {await ref.state()}") from None
    finally:
        await app.close()


def pods_gone(path):
    items = (call("GET", path) or {}).get("items") or []
    return not items, [f"{item['metadata']['name']} {item['status'].get('phase')}" for item in items]


def main():
    started = time.monotonic()
    namespace = os.environ["DOCKWORK_NAMESPACE"]
    name = f"selftest-{secrets.token_hex(4)}"
    queues = f"/apis/dockwork.dev/v1alpha1/namespaces/{namespace}/queues"
    one, pods = f"{queues}/{name}", f"/api/v1/namespaces/{namespace}/pods?labelSelector=dockwork.dev/queue%3D{name}"
    try:
        call("POST", queues, manifest(name))
        say(started, f"queue {namespace}/{name} applied")
        wait_for("the operator accepts the Queue", lambda: is_accepted(one))
        say(started, "accepted by the operator")
        result = asyncio.run(run_job(name))
        if result != 42:
            raise Failed(f"the job's result is {result!r}, 42 was expected")
        say(started, "one job run to completion")
        wait_for("no pods are left", lambda: pods_gone(pods))
        say(started, "back to no pods")
    except Failed as failed:
        say(started, f"FAILED: {failed}")
        say(started, f"conditions: {conditions_of(call('GET', one))}")
        return 1
    finally:
        call("DELETE", one)
    wait_for("the Queue is gone", lambda: (call("GET", one) is None, "still there"))
    say(started, "queue removed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
