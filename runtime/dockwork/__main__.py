"""``python -m dockwork`` is the command ``dockwork``."""

from dockwork.entry import main

if __name__ == "__main__":
    main()
