"""Entry point of `goodspeed-draft` and `python -m draft_node`."""

import sys

from goodspeed.serving import starting


def main() -> int:
    starting.begin()
    from draft_node.cli import main as run  # a slow import

    return run()


if __name__ == "__main__":
    sys.exit(main())
