"""Entry point of `goodspeed` and `python -m goodspeed`."""

import sys

from goodspeed.serving import starting


def main() -> int:
    starting.begin()
    from goodspeed.app.cli import main as run  # slow to import

    return run()


if __name__ == "__main__":
    sys.exit(main())
