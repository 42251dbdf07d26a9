"""The rules of any world, however bad: looked at while it runs (`Silence`) and when it is over (`look_back`).

A finding is a line for the developer; the counts are for the report.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from math import isfinite

from experiments.simulation.checking.allowed_wait import patience_s, shares_a_fate
from experiments.simulation.nodes.draft import DraftNode
from experiments.simulation.nodes.users import UserText
from experiments.simulation.settings import Settings
from experiments.simulation.texts.text import alone
from experiments.simulation.world import World
from goodspeed.wire.messages import RefusalCode
from verify_node.core.sessions import FORGOTTEN_S

LOOK_EVERY_S = 1.0

NEVER: frozenset[RefusalCode] = frozenset(
    {"malformed", "too_large", "version", "tokenizer", "not_owner", "vocabulary", "prompt", "unsupported", "proposal"}
)
"""Refusals that an honest draft node never earns, whatever the weather."""


@dataclass
class Counts:
    """Counts of what was looked at and what was found."""

    num_sessions: int = 0
    num_wrong: int = 0  # sessions whose text is not what the target alone writes
    num_lost: int = 0  # tokens of it that never came
    num_duplicated: int = 0  # tokens that came beyond it, above all those that came twice
    pages_left: int = 0
    num_silent: int = 0  # clients that waited too long for something new
    num_unearned: int = 0  # refusals
    num_broken: int = 0  # worlds in which something raised
    longest_silence: float = 0.0  # as a share of what is allowed


@dataclass
class Findings(Counts):
    """Findings in one world."""

    what: list[str] = field(default_factory=list)


class Silence:
    """Looks at every client once a second: is something new on its way to its users, or is it forgotten?"""

    def __init__(self, world: World) -> None:
        self.longest = 0.0
        self.silent: list[int] = []  # clients
        self._world = world
        self._allowed_s = patience_s(world.settings)
        world.clock.after(LOOK_EVERY_S, self._look)

    def _look(self) -> None:
        world = self._world
        world.clock.after(LOOK_EVERY_S, self._look)
        for draft in world.drafts:
            if not self._is_owed(draft):
                continue
            share = (world.now - self._since(draft)) / self._allowed_s
            self.longest = max(self.longest, share)
            if share > 1.0 and draft.index not in self.silent:
                self.silent.append(draft.index)

    def _is_owed(self, draft: DraftNode) -> bool:
        """True if a client is owed something new: not if all its sessions wait for places."""
        return any(draft.core.queue.has_place(session_id) for session_id in draft.generations)

    def _since(self, draft: DraftNode) -> float:
        """Its users' last new token, or the end of the last blow since then, whichever is later.

        While the verify node is away nothing is owed.
        """
        world = self._world
        back_at = world.now if world.verify.core is None else world.verify.booted_at
        concerned = world.drafts if shares_a_fate(world.settings) else [draft]
        blows = [other.struck_until for other in concerned]
        moved = [other.moved_at for other in concerned]
        return max(back_at, *blows, *moved)


def look_back(
    world: World,
    silence: Silence,
    *,
    had_reason: Callable[[UserText, World], bool] | None = None,
    is_earned: Callable[[str, Settings], bool] | None = None,
) -> Findings:
    """Returns the findings in a world that is over, after enough time for forgotten sessions to be given up.

    had_reason: whether a text might fail; is_earned: whether a refusal might come. By default as with one verify node.
    """
    had_reason, is_earned = had_reason or had_reason_with_one, is_earned or _is_earned
    found = Findings(longest_silence=silence.longest, num_silent=len(silence.silent))
    found.what += [f"client {index} got nothing for too long" for index in silence.silent]
    for generation in _generations(world):
        _compare(generation, world, found, had_reason)
    for place in world.places:
        for code, number in place.refusals.items():
            if not is_earned(code, world.settings):
                found.num_unearned += number
                found.what.append(f"{number} refusals {code!r} that nobody earned")
    _look_at_memory(world, found)
    return found


def _generations(world: World) -> Iterator[UserText]:
    for draft in world.drafts:
        yield from draft.done
        yield from draft.generations.values()  # not over: the world stood still


def _compare(
    generation: UserText, world: World, found: Findings, had_reason: Callable[[UserText, World], bool]
) -> None:
    """A cancelled or failed session has delivered a prefix of its text; every text comes from one target."""
    found.num_sessions += 1
    settings, request = world.settings, generation.session.request
    delivered = tuple(generation.delivered)
    target = int(generation.session.target or 0)
    context_len = min(settings.context_len, settings.num_pages * settings.page_size)
    expected = alone(request, context_len, target)
    if generation.fail is not None and not had_reason(generation, world):
        found.what.append(f"a session failed for no reason: {generation.fail}")
    elif generation.fail is not None or generation.cancelled:
        expected = expected[: len(delivered)]
    if delivered == expected:
        return
    found.num_wrong += 1
    for kind, first, last, begin, end in SequenceMatcher(None, expected, delivered, autojunk=False).get_opcodes():
        if kind != "equal":
            found.num_lost += last - first
            found.num_duplicated += end - begin
    found.what.append(f"{list(delivered)} was delivered and not {list(expected)}")


def had_reason_with_one(generation: UserText, world: World) -> bool:
    """True if this session might fail: a node stopped or stayed away, or the target failed on it or was replaced."""
    code = generation.fail.code if generation.fail is not None else ""
    if code == "target_changed":
        return generation.session.target != str(world.verify.num_targets - 1)
    if code in ("closed", "draining"):
        return generation.ended is not None and generation.ended.was_stopping
    if code == "verify_away":
        ended, slow = generation.ended, 1.0 + world.settings.faults.drift
        return ended is not None and ended.away_s * slow > world.settings.connect_timeout_s
    return any(generation.session.request.session_id in place.verify.failures.given_up for place in world.places)


def _is_earned(code: str, settings: Settings) -> bool:
    faults = settings.faults
    if code in NEVER:
        return False
    if code == "draining":
        return bool(faults.stop_every_s)
    if code == "failed":
        return bool(faults.abort or faults.fail or faults.bad)
    if code == "too_many_sessions":
        return settings.max_sessions < settings.num_clients * settings.num_at_once or _is_stormy(settings)
    return _is_stormy(settings)


def _is_stormy(settings: Settings) -> bool:
    """True if messages may be lost, come twice, in another order or very late, or be for somebody who is no more."""
    faults = settings.faults
    target = faults.abort or faults.fail or faults.bad
    late = isfinite(min(settings.bytes_per_s))
    return bool(faults.lose or faults.repeat or faults.jitter_s or faults.strikes_nodes or target or late)


def _look_at_memory(world: World, found: Findings) -> None:
    nodes = [place.verify for place in world.places if not place.verify.is_gone]
    world.settle(max(0.0, *(node.back_at - world.now for node in nodes)) + 2 * FORGOTTEN_S)
    for node in nodes:
        core = node.core
        if core is None:
            found.what.append("the verify node did not come back")
            continue
        if core.sessions:
            found.what.append(f"{len(core.sessions)} sessions are left over")
        core.plan(world.now)  # frees what was released
        pages_left = core.pool.num_pages - core.pool.num_free
        found.pages_left += pages_left
        if pages_left:
            found.what.append(f"{pages_left} pages are left over")
