"""The rules of a world with several verify nodes, beside those of one (`checks.py`).

Nobody is sent about for ever, nobody waits while a verify node is in reach, and a text that ends since its target is no
more was not to be had anywhere.
"""

from draft_node.core.links import GRACE_S, JITTER_S, REDIRECT_S, TRY_S
from experiments.simulation.checking.allowed_wait import patience_s
from experiments.simulation.checking.checks import NEVER, Findings, Silence, had_reason_with_one, look_back
from experiments.simulation.fleet.draft import FleetDraft
from experiments.simulation.fleet.table import FORGOTTEN_S
from experiments.simulation.fleet.world import MENDED_EVERY_S, FleetWorld
from experiments.simulation.nodes.draft import DraftNode
from experiments.simulation.nodes.users import UserText
from experiments.simulation.settings import Settings
from experiments.simulation.world import World
from goodspeed.wire.fields import MAX_HOPS


def fleet_patience_s(settings: Settings) -> float:
    """Seconds that a user may wait in quiet times: as with a single verify node, and a way through the fleet."""
    moved_s = GRACE_S + JITTER_S + MAX_HOPS * (REDIRECT_S + TRY_S) + FORGOTTEN_S + settings.fleet.table_lag_s
    return 2 * patience_s(settings) + moved_s + settings.num_verifies * TRY_S


class FleetSilence(Silence):
    """Looks at every client once a second, as long as a verify node that it knows is there."""

    def __init__(self, world: FleetWorld) -> None:
        self._fleet = world
        super().__init__(world)
        self._allowed_s = fleet_patience_s(world.settings)

    def _is_owed(self, draft: DraftNode) -> bool:
        return super()._is_owed(draft) and self._knows_anybody(self._fleet.fleet_drafts[draft.index])

    def _knows_anybody(self, draft: FleetDraft) -> bool:
        known = (self._fleet.place(address.endpoint).verify for address in draft.known_addresses())
        is_there = any(node.core is not None for node in known)
        return is_there and self._fleet.now - draft.booted_at > MENDED_EVERY_S

    def _since(self, draft: DraftNode) -> float:
        """Its users' last new token, or the end of the last blow to anybody since then."""
        world = self._fleet
        times = [max(node.went_at, node.booted_at) for node in world.verifies]
        return max(draft.moved_at, world.table.wrong_at, *times, *(other.struck_until for other in world.drafts))


def look_back_at_fleet(world: FleetWorld, silence: FleetSilence) -> Findings:
    """Returns the findings in a world that is over."""
    found = look_back(world, silence, had_reason=_had_reason, is_earned=_is_earned)
    for draft in world.fleet_drafts:
        if draft.most_redirects > 0:
            found.what.append(f"client {draft.index} was sent about {draft.most_redirects} times too often")
        for session_id in draft.ended_early:
            found.what.append(f"session {session_id.hex()} ended by its target, which was there")
    return found


def _had_reason(generation: UserText, world: World) -> bool:
    code = generation.fail.code if generation.fail is not None else ""
    if code == "target_changed":
        return bool(world.settings.faults.retarget)  # `ended_early` has those that others might have gone on with
    return had_reason_with_one(generation, world)


def _is_earned(code: str, settings: Settings) -> bool:
    faults = settings.faults
    if code == "draining":
        return bool(faults.stop_every_s or settings.fleet.roll_every_s)
    if code == "failed":
        return bool(faults.abort or faults.fail or faults.bad)
    return code not in NEVER
