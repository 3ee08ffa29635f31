"""The test bed as a script: `python3 tests/bed VERB`. It runs before the venv exists."""

import sys
from pathlib import Path

# Run as a folder, Python puts this folder itself on the path; the modules are imported as `bed.…`.
sys.path[0] = str(Path(__file__).resolve().parents[1])

from bed.cli import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
