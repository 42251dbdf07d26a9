"""`goodspeed`, which `python -m goodspeed` is too."""

import sys

from goodspeed.serving import starting


def main() -> int:
    starting.begin()
    from goodspeed.app.cli import main as run  # takes a while

    return run()


if __name__ == "__main__":
    sys.exit(main())
