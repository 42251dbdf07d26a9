"""`python -m goodspeed` is `goodspeed`."""

import sys

from goodspeed.app.cli import main

if __name__ == "__main__":
    sys.exit(main())
