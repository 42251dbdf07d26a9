"""The twin of live runs: the same clients on a virtual clock, with the acceptance, times and texts measured in them.

All runs in one kind of rounds are measured together, so what differs between its simulated policies is their own doing.
A drafted token agrees with the probability that its place in a draft had, whatever it is; so no draft model can be more
certain of one token than of another, as real ones are. Continuous rounds verify likely tokens only, so the agreement
that is measured in them is too high for others: they replay recorded texts (`texts/recorded.py`) where there are some
of this pair of models. A twin has its mean times, and none of the spread.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from experiments.served.recorded import Run, Trial, collect, survival
from experiments.served.running import Kind
from experiments.simulation.nodes.surroundings import Finished
from experiments.simulation.settings import Settings
from experiments.simulation.texts import proposals
from experiments.simulation.texts.acceptance import Acceptance
from experiments.simulation.texts.recorded import RecordedTexts
from experiments.simulation.twin import like, line_and_step_s, round_cost
from experiments.simulation.world import World
from goodspeed.fair.round_time import Linear
from goodspeed.serving.measuring.recording import Drafted, Opened, Round
from goodspeed.wire.messages import OpenSession, Verdict
from verify_node.config import VerifyConfig

NEAR = 0.1
"""A simulated figure may be so far off its live one, as a share of it."""

SPARE = 100
"""Rounds until all clients have had a token, at most."""


@dataclass(frozen=True)
class Placed(Acceptance):
    """Agreement by a token's place in its draft."""

    rates: Sequence[float]  # all tokens before it being right
    wrong: float  # after a wrong one

    def rate(self, position: int, offset: int, on_path: bool) -> float:
        return self.rates[min(offset, len(self.rates) - 1)] if on_path else self.wrong


def placed(runs: Sequence[Run], client: int, length: int, *, waits: bool) -> Placed:
    """Returns the agreement that a client's drafts of at most `length` tokens show.

    waits: rounds wait for drafts, so what is not there was not proposed.
    """
    trials = [each for one in runs for each in one.trials(client)]
    drafted = trials if waits else [Trial(len(each.draft.agreed), each.draft) for each in trials]
    curve = survival(drafted, length)
    before = np.concatenate([[1.0], curve[:-1]])
    rates = np.divide(curve, before, out=np.zeros(length), where=before > 0)
    beyond = [share for each in trials for share in _shares(each.draft)[each.draft.num_accepted + 1 :]]
    return Placed(rates.tolist(), float(np.mean(beyond)) if beyond else float(rates[0]))


def _shares(draft: Drafted) -> tuple[float, ...]:
    return draft.ratios or tuple(map(float, draft.agreed))


def _opened(number: int, client: str, opened: OpenSession) -> Opened:
    return Opened(
        number=number,
        client=client,
        draft_model="simulated",
        seed=0,
        prompt_len=len(opened.prompt),
        max_tokens=opened.max_tokens,
        joined=0,
        verification=opened.verification,
    )


def recorded(
    target: str, draft_model: str, domains: Sequence[str], temperature: float, recordings: str = ""
) -> RecordedTexts | None:
    """Returns recorded texts of each client's domain; None if the file has none of these models.

    recordings: a file; empty: the shipped one.
    """
    known = proposals.load(recordings)
    models = known.title.draft_models
    has = {text.domain for text in known.texts if text.temperature == temperature}
    if known.title.target != target or draft_model not in models or not has.issuperset(domains):
        return None
    return RecordedTexts([models.index(draft_model)] * len(domains), temperature, 0, recordings, domains)


def settings(
    kind: Kind, node: VerifyConfig, runs: Sequence[Run], waiting: Sequence[Run], texts: RecordedTexts | None = None
) -> Settings:
    """Returns the world of a kind of rounds.

    runs: in it. waiting: runs in rounds that wait for drafts, whose times tell how long these take. texts: what rounds
    that do not wait replay.
    """
    waits = node.core.rounds == "barrier"
    clients = range(len(runs[0].clients))
    places = [placed(runs, client, node.core.budget, waits=waits) for client in clients]
    sizes = [[size for one in runs for size in one.sizes(client)] for client in clients]
    lines = [line_and_step_s(each for one in waiting for each in one.drafts(client)) for client in clients]
    ratio = any(opened.verification == "ratio" for one in runs for opened in one.sessions.values())
    found = replace(
        like(node.core),
        num_clients=len(clients),
        loads=tuple(kind.loads),
        sizes=lambda client, number: sizes[client][number % len(sizes[client])],
        verification=("ratio",) if ratio else ("match",),
        acceptance=lambda client, number: places[client],
        round_cost=round_cost(done for one in runs for done in one.rounds),
        draft_cost=tuple(
            Linear(fixed_s=step_s * factor)
            for (_, step_s), factor in zip(lines, kind.slower or [1.0] * len(clients), strict=True)
        ),
        latency_s=tuple(latency_s for latency_s, _ in lines),
    )
    return found if waits or texts is None else replace(found, acceptance=texts, ngrams=("own",), replays_own=True)


def simulate(world_settings: Settings, clients: Sequence[str], num_rounds: int, seed: int) -> Run:
    """Returns so many simulated rounds in which all clients took part, as if they had been recorded."""
    lines: list[Opened | Round] = []
    numbers: dict[bytes, int] = {}
    most = num_rounds + SPARE

    def drafted(verdict: Verdict) -> Drafted:
        core = world.verify.core
        assert core is not None
        session = core.sessions[verdict.session_id]
        if verdict.session_id not in numbers:
            numbers[verdict.session_id] = len(numbers)  # in the order of the first verdicts
            client = clients[int(session.client.name.removeprefix("client-"))]
            lines.append(_opened(numbers[verdict.session_id], client, session.opened))
        return Drafted(
            session=numbers[verdict.session_id],
            base_len=0,
            agreed="1" * verdict.num_accepted + "0" * (verdict.num_verified - verdict.num_accepted),
            num_accepted=verdict.num_accepted,
            num_tokens=len(verdict.tokens),
            may_draft=verdict.may_draft,
            acceptance_rate=session.acceptance.value,
            goodput=session.client.goodput.value,
            finish_reason=verdict.finish_reason,
        )

    def note(done: Finished) -> None:
        lines.append(
            Round(
                number=done.round.number,
                started_s=done.started,
                waited_s=done.waited_s,
                duration_s=done.duration_s,
                num_tokens=done.round.num_tokens,
                num_sessions=len(done.round.entries),
                context_tokens=done.round.context_tokens,
                drafts=tuple([drafted(verdict) for verdict in done.verdicts]),
            )
        )

    num_texts = most * max(world_settings.loads, default=1)
    world = World(seed, replace(world_settings, policy_seed=seed, num_sessions=num_texts), note)
    world.run_rounds(most)
    events = ({"event": "recorded", "line": msgspec.to_builtins(line)} for line in lines)
    return collect(events, clients, num_rounds)
