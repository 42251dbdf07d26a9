"""The world of a recorded run: the same settings, texts and agreement, and times as they were on average.

What depends on chance in reality, in which order and after which rounds the sessions opened, is taken from the
recording. So under barrier rounds, where time decides nothing else, the twin does what the run did, draft by draft.
"""

from collections.abc import Iterable
from statistics import mean

from experiments.simulation.recordings import Agreement, of_run
from experiments.simulation.replay import Counts, Replayed
from experiments.simulation.settings import Settings
from goodspeed.errors import ConfigError
from goodspeed.fair.latency import Linear, Sample, fit_linear
from goodspeed.node.recording import Drafted, Opened, Recording
from verify_node.config import VerifyConfig

ROOM = 1 << 12
"""Pages, and tokens of context: enough that neither ever runs out."""


def twin(run: Recording, known: Iterable[Agreement] | None = None, counts: Counts | None = None) -> Settings:
    """Replays what agreed in the run itself, or what is known of its texts; `counts` tells how much of that is not.

    ConfigError where a client has several sessions: which of them came when, is not modelled.
    """
    header, sessions = run.header, run.sessions
    if len({opened.client for opened in sessions}) != len(sessions) or not run.rounds:
        raise ConfigError("only a run of one session a client has a twin; `goodspeed demo --record` makes such runs")
    node = VerifyConfig(model=header.model, budget=header.budget, policy=header.policy, cost=header.cost)
    texts = of_run(run, known)
    sizes = [(opened.prompt_len, _num_tokens(run, opened)) for opened in sessions]
    drafts = [[one for done in run.rounds for one in done.drafts if one.session == at] for at in range(len(sessions))]
    return Settings(
        num_clients=len(sessions),
        num_sessions=1,
        num_at_once=1,
        stops=0.0,
        sizes=lambda client, number: sizes[client],
        joins=tuple(opened.joined for opened in sessions),
        rounds=header.rounds,
        policy=header.policy,
        policy_seed=header.seed,
        weighs_time=node.weighs_time,
        budget=header.budget,
        eta=node.eta,
        beta=node.beta,
        max_round_tokens=node.round_tokens,
        linger_s=header.linger_ms / 1000,
        num_pages=ROOM,
        page_size=16,
        context_len=ROOM,
        round_cost=round_cost(run),
        acceptance=lambda client, number: Replayed(texts[client], counts),
        draft_cost=tuple(Linear(fixed_s=step_s(own)) for own in drafts),
        draft_ahead=header.draft_ahead,
        latency_s=tuple(latency_s(own) for own in drafts),
    )


def _num_tokens(run: Recording, opened: Opened) -> int:
    """A text that ended by itself ends there for its length."""
    own = [drafted for done in run.rounds for drafted in done.drafts if drafted.session == opened.number]
    stopped = any(drafted.finish_reason == "stop" for drafted in own)
    return max(1, sum(drafted.num_tokens for drafted in own)) if stopped else opened.max_tokens


def round_cost(run: Recording) -> Linear:
    """A round's duration by what was fed, from all of them."""
    return fit_linear(
        [
            Sample(done.num_tokens, done.num_sessions, done.context_tokens, done.duration_s)
            for done in run.rounds
            if done.duration_s > 0
        ]
    )


def step_s(drafts: Iterable[Drafted]) -> float:
    """Returns the seconds of the draft model's step: each draft takes one to catch up, and one for each token."""
    made = [one for one in drafts if one.drafting_s > 0]
    num_steps = sum(len(one.agreed) + 1 for one in made)
    return sum(one.drafting_s for one in made) / num_steps if num_steps else 0.0


def latency_s(drafts: Iterable[Drafted]) -> float:
    """Returns one way's seconds: half of an answer less its drafting; only drafts made after their verdict tell."""
    ways = [one.answer_s - one.drafting_s for one in drafts if one.answer_s > one.drafting_s > 0]
    return mean(ways) / 2 if ways else 0.0
