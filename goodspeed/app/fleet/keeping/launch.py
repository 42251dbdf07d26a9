"""`python -m goodspeed.app.fleet.keeping.launch FOLDER`: starts the command of `start.json` as a process of nobody's.

It has a session and a parent of its own, so it outlives whoever asked for it: Ray ends its workers' children with them.
`process.json` says which process it is before it does anything. Knows nothing about the command.
"""

import os
import sys
from pathlib import Path

import msgspec

from goodspeed.app.fleet.keeping.folders import ReplicaFolder
from goodspeed.app.fleet.keeping.plan import environment
from goodspeed.app.fleet.keeping.processes import remember
from goodspeed.errors import ProcessError
from goodspeed.fleet.table import write_whole


def launch(folder: ReplicaFolder) -> None:
    """Starts the command, and ends this process once it runs, or cannot be started."""
    started = folder.started()
    if started is None:
        raise ProcessError(f"{folder.start} is damaged; take the fleet down with `goodspeed-fleet down`")
    reading, writing = os.pipe()  # closed by the exec, and by a failure before it
    if os.fork():
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    log = os.open(folder.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for descriptor, goes_to in ((0, nowhere), (1, nowhere), (2, log)):
        os.dup2(goes_to, descriptor)
    os.chdir(started.folder if Path(started.folder).is_dir() else folder.path)
    write_whole(folder.process, msgspec.json.encode(remember(os.getpid())))
    os.execve(started.command[0], started.command, environment())


if __name__ == "__main__":
    launch(ReplicaFolder(Path(sys.argv[1])))
