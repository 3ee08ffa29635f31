"""The garbage collector during a worker's start."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pytest

from dockwork.cli.importing import collector_at_rest


@pytest.mark.covers("RT-240")
def test_the_collector_rests_and_comes_back_whatever_happens() -> None:
    with collector_at_rest():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ImportError), collector_at_rest():
        raise ImportError
    assert gc.isenabled()


def test_who_has_no_collector_is_given_none() -> None:
    gc.disable()
    try:
        with collector_at_rest():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_an_app_is_imported_with_the_collector_that_python_gives_it(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "import gc\nprint('collector', gc.isenabled())\nraise RuntimeError('far enough')\n"
    )

    done = subprocess.run(
        [sys.executable, "-m", "dockwork", "worker", "shop:app"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert done.returncode == 3
    assert "collector True" in done.stdout
