"""Entry point of `goodspeed-fleet` and `python -m goodspeed.app.fleet`."""

import sys

from goodspeed.serving import starting


def main() -> int:
    starting.begin()
    from goodspeed.app.fleet.cli import main as run  # slow to import

    return run()


if __name__ == "__main__":
    sys.exit(main())
