"""`python -m goodspeed.app.fleet` is `goodspeed-fleet`."""

import sys

from goodspeed.app.fleet.cli import main

if __name__ == "__main__":
    sys.exit(main())
