"""A low limit on descriptors for a test."""

import contextlib
import resource
from collections.abc import Iterator


@contextlib.contextmanager
def at_most(num_files: int) -> Iterator[None]:
    """Lowers the limit on this process's open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (num_files, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
