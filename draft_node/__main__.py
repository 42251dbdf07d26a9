"""`goodspeed-draft`, which `python -m draft_node` is too."""

import sys

from goodspeed.serving import starting


def main() -> int:
    starting.begin()
    from draft_node.cli import main as run  # takes a while

    return run()


if __name__ == "__main__":
    sys.exit(main())
