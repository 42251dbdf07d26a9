"""A verify node with keys, draft nodes each behind a bad line of its own, and how each kind of fault is done to them.

What blocks runs in threads: the event loop is the users'.
"""

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.faults.conftest import make_keys
from tests.faults.proxy import Proxy
from tests.faults.soak.judging import Weather
from tests.faults.soak.plan import VERIFY, Fault, Role
from tests.faults.soak.processes import SoakedNode
from tests.nodes import ANYWHERE, with_settings

VERIFY_PAGES = 72
"""The verify node's pages of key/value memory. Untouched memory is not resident, so that with plenty of it a node grows
for as long as more texts come together than ever before (by huge pages of 2 MB: 4 MB in a life of ten minutes,
measured). So few are all used within a minute; what grows after that is something else. Twelve texts want up to a
hundred: some wait."""

GRACE_S = 45.0  # the time for a node to end in good order: a draining draft node lets its texts end for 30 s


class Site:
    """`async with Site(...)`: all processes are ready inside, and gone afterwards, whatever happened."""

    def __init__(self, folder: Path, cast: list[Role], weather: Weather, clock: Callable[[], float]) -> None:
        self.cast = {role.name: role for role in cast}
        self.weather = weather
        self.nodes: dict[str, SoakedNode] = {}
        self.proxies: dict[str, Proxy] = {}
        self.statuses: dict[str, int | None] = {}  # of nodes that were told to end; None: it had to be killed
        self._folder = folder
        self._clock = clock
        self._enrolled = folder / "enrolled"
        self.failures: list[BaseException] = []  # of faults that could not be done, or undone
        self._busy: set[asyncio.Task[None]] = set()  # faults that go on

    async def __aenter__(self) -> "Site":
        try:
            await asyncio.to_thread(make_keys, self._folder, tuple(self.cast))
            verify = self._start_verify()
            await asyncio.to_thread(verify.ready_again)
            for role in self.cast.values():
                self._start_draft(role, str(verify.events[0]["endpoint"]))
            for node in self.nodes.values():
                await asyncio.to_thread(node.wait_for, "ready" if node is verify else "connected")
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._busy:
            task.cancel()
        await asyncio.gather(*self._busy, return_exceptions=True)
        for node in self.nodes.values():
            node.process.kill()
        await asyncio.gather(*(asyncio.to_thread(node.kill) for node in self.nodes.values()))
        for proxy in self.proxies.values():
            proxy.close()

    @property
    def verify(self) -> SoakedNode:
        return self.nodes[VERIFY]

    @property
    def drafts(self) -> list[SoakedNode]:
        return [self.nodes[name] for name in self.cast]

    def is_dying(self, name: str) -> bool:
        """True while a node is being killed or not ready again."""
        return any(one.kind == "kill" and one.whom == name for one in self.weather.present())

    async def end(self) -> None:
        """Draft nodes are told to end, then the verify node; how they did is in `statuses`."""
        await asyncio.gather(*(self._terminate(node) for node in self.drafts))
        await self._terminate(self.verify)

    async def _terminate(self, node: SoakedNode) -> None:
        if not node.is_running:
            self.statuses[node.name] = node.process.returncode
            return
        ending = asyncio.create_task(asyncio.to_thread(node.terminate))
        done, _ = await asyncio.wait([ending], timeout=GRACE_S)
        if not done:
            node.process.send_signal(signal.SIGKILL)
        self.statuses[node.name] = await ending if done else None
        with suppress(BaseException):
            await ending

    # -- faults ----------------------------------------------------------------------------------------------------

    def strike(self, fault: Fault) -> None:
        """Does it, and undoes it when its time is over."""
        task = asyncio.create_task(self._suffer(fault))
        self._busy.add(task)
        task.add_done_callback(self._suffered)

    def _suffered(self, task: "asyncio.Task[None]") -> None:
        self._busy.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failures.append(error)

    async def rest(self) -> None:
        """Waits until every fault is over."""
        if self._busy:
            await asyncio.wait(self._busy)

    async def _suffer(self, fault: Fault) -> None:
        episode = self.weather.begin(fault.kind, fault.whom, self._clock())
        try:
            await self._do(fault, self.nodes[fault.whom])
        finally:
            episode.ended_at = self._clock()  # else it would excuse whatever comes after it

    async def _do(self, fault: Fault, node: SoakedNode) -> None:
        if fault.kind == "kill":
            await asyncio.to_thread(node.kill)
            await asyncio.sleep(fault.duration_s)
            node.start_again()
            await asyncio.to_thread(node.ready_again)
        elif fault.kind == "freeze":
            node.stop()
            await self._undone_after(fault.duration_s, node.go_on)
        elif fault.kind == "revoke":
            self._move_key(fault.whom, self._enrolled, self._folder)
            await self._undone_after(fault.duration_s, lambda: self._move_key(fault.whom, self._folder, self._enrolled))
        else:
            await self._disturb_line(self.proxies[fault.whom], fault)

    async def _disturb_line(self, proxy: Proxy, fault: Fault) -> None:
        match fault.kind:
            case "delay":
                proxy.delay_s = fault.strength
            case "jitter":
                proxy.jitter_s = fault.strength
            case "throttle":
                proxy.bytes_per_s = fault.strength
            case "resets":
                proxy.reset_share = min(fault.strength, 0.99)
            case "cut":
                proxy.cut()
            case "blackhole":
                proxy.blackhole()
            case "half_open_up":
                proxy.half_open("up")
            case "half_open_down":
                proxy.half_open("down")
            case _:
                raise ValueError(f"no fault is called {fault.kind!r}")

        def mend() -> None:
            proxy.delay_s = proxy.jitter_s = proxy.reset_share = 0.0
            proxy.bytes_per_s = None
            proxy.heal()

        await self._undone_after(fault.duration_s, mend)

    async def _undone_after(self, duration_s: float, undo: Callable[[], None]) -> None:
        try:
            await asyncio.sleep(duration_s)
        finally:
            undo()

    # -- its parts -------------------------------------------------------------------------------------------------

    def _move_key(self, name: str, source: Path, target: Path) -> None:
        (source / f"{name}.pub").rename(target / f"{name}.pub")

    def _start_verify(self) -> SoakedNode:
        words = [*with_settings(kv_pages=VERIFY_PAGES), "--model", "tiny-target"]
        words += ["--bind", f"tcp://{ANYWHERE}", "--http", ANYWHERE]
        words += ["--key", str(self._folder / "verify.key"), "--enrolled", str(self._enrolled)]
        ports = {"--bind": "endpoint", "--http": "url"}
        self.nodes[VERIFY] = SoakedNode(VERIFY, *words, ports=ports)
        return self.nodes[VERIFY]

    def _start_draft(self, role: Role, endpoint: str) -> None:
        proxy = self.proxies[role.name] = Proxy(endpoint, seed=len(self.proxies))
        words = ["--model", role.model, "--verify", proxy.endpoint, "--verification", role.rule]
        words += ["--key", str(self._folder / f"{role.name}.key"), "--verify-key", str(self._folder / "verify.pub")]
        words += ["--http", ANYWHERE]
        self.nodes[role.name] = SoakedNode(role.name, "draft_node", *words, ports={"--http": "url"})
