"""What only `goodspeed demo` and `goodspeed chat` need: the extra `app`, which a node does without."""

from importlib.util import find_spec

from goodspeed.errors import NotInstalled

LIBRARIES = ("rich", "matplotlib", "httpx2")


def require(subcommand: str) -> None:
    """Raises NotInstalled where a library of the extra is not installed."""
    missing = [name for name in LIBRARIES if find_spec(name) is None]
    if missing:
        raise NotInstalled(f"`goodspeed {subcommand}`", "app", *missing)
