#!/bin/sh
# asyncio.wait_for of Python 3.11 loses a cancellation that comes when what it waits for is done.
#
# Asked:   a task awaits wait_for(event.wait(), 5); the event is set, and one turn of the loop later the task is cancelled.
# Wanted:  the task ends with CancelledError.
# Seen:    Python 3.11.7: wait_for returns True, and the task goes on to its own end.
#              wait_for   goes on, cancelling() is 1
#              timeout    is cancelled
# So:      wait within `async with asyncio.timeout(5):`, which does not lose it. A loop around wait_for never ends.
#
# Needs Python 3.11 and no packages. Exits with 1 if it behaves otherwise; Python 3.12 writes wait_for with timeout.
set -eu
"${PYTHON:-python3.11}" - <<'PROGRAM'
import asyncio
import sys


async def by_wait_for(event):
    await asyncio.wait_for(event.wait(), 5)


async def by_timeout(event):
    async with asyncio.timeout(5):
        await event.wait()


async def outcome(wait):
    async def run():
        await wait(event)
        for _ in range(10):  # what it does then can be cancelled, too
            await asyncio.sleep(0)
        return f"goes on, cancelling() is {asyncio.current_task().cancelling()}"

    event = asyncio.Event()
    task = asyncio.create_task(run())
    for _ in range(3):  # it begins, and so does the task of wait_for
        await asyncio.sleep(0)
    event.set()
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    return "is cancelled" if task.cancelled() else task.result()


found = {name: asyncio.run(outcome(wait)) for name, wait in (("wait_for", by_wait_for), ("timeout", by_timeout))}
print("Python", sys.version.split()[0])
for name, what in found.items():
    print(f"{name:10} {what}")
sys.exit(found != {"wait_for": "goes on, cancelling() is 1", "timeout": "is cancelled"})
PROGRAM
echo "as described: wait_for loses the cancellation, timeout does not"
