"""``python -m dockwork`` is the command ``dockwork``."""

from dockwork.cli import main

if __name__ == "__main__":
    main(prog_name="dockwork")
