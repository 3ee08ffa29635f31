#!/usr/bin/env bash
# Renews every lock file: exact versions with hashes, for every platform, and no index address.
set -euo pipefail
cd "$(dirname "$0")/.."
UV=.venv/bin/uv
lock() { # lock OUTPUT ARGUMENTS...
  local out=$1; shift
  "$UV" pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url --no-emit-find-links -o "$out" "$@"
  echo "$out: $(grep -cE '^[a-z0-9].*==' "$out") distributions"
}
version() { .venv/bin/python -c "import importlib.metadata as m; print(m.version('$1'))"; }
lock requirements.lock --all-extras pyproject.toml
lock requirements/runtime.lock --extra uvloop --extra encryption --extra yaml pyproject.toml
lock requirements/operator.lock --extra operator --extra uvloop pyproject.toml
printf 'pillow\n' | lock requirements/thumbnails.lock -c requirements.lock -
printf 'uv==%s\n' "$(version uv)" | lock requirements/bootstrap.lock -
