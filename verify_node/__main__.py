"""Entry point of `goodspeed-verify`, also available as `python -m verify_node`."""

import sys

from goodspeed.serving import starting


def main() -> int:
    starting.begin()
    from verify_node.cli import main as run  # takes a while

    return run()


if __name__ == "__main__":
    sys.exit(main())
