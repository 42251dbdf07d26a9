"""The world of a recorded run: the same settings, texts and agreement, and times as they were on average.

What depends on chance in reality, in which order and after which rounds the sessions opened, is taken from the
recording. So under barrier rounds, where time decides nothing else, the twin does what the run did, draft by draft;
but Eq. (3) observes other numbers under the ratio rule.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from experiments.simulation.settings import Settings
from experiments.simulation.texts.acceptance import Acceptance, Acceptances
from goodspeed.errors import ConfigError
from goodspeed.fair.fit import fit_roofline
from goodspeed.fair.round_time import Linear, Sample
from goodspeed.serving.measuring.recording import Drafted, Opened, Round
from verify_node.core.settings import CoreSettings

ROOM = 1 << 12
"""Pages, and tokens of context: enough that neither ever runs out."""


class Recording(NamedTuple):
    """A verify node's recording of a run, with its settings."""

    node: CoreSettings
    sessions: tuple[Opened, ...]
    rounds: tuple[Round, ...]


class Played(Acceptance):
    """Replays what agreed in a session's drafts, by the position at which each began; barrier rounds have no others."""

    def __init__(self, drafts: Iterable[Drafted]) -> None:
        self._agreed = {one.base_len: one.agreed for one in drafts}
        every = "".join(self._agreed.values())
        self._rate = every.count("1") / max(1, len(every))

    def rate(self, position: int, offset: int, on_path: bool) -> float:
        return float(self._agreed[position - offset][offset])

    def probabilities(self, position: int, offset: int) -> float:
        """Returns the share of all drafted tokens that agree, since no draft model knows whether this one does."""
        return self._rate


def twin(run: Recording, acceptance: Acceptances | None = None) -> Settings:
    """Replays what agreed in the run itself, or what else is known of its texts: a run of continuous rounds needs that.

    ConfigError where a client has several sessions: which of them came when, is not modelled.
    """
    sessions = run.sessions
    if len({opened.client for opened in sessions}) != len(sessions) or not run.rounds:
        raise ConfigError(
            "only a run of one session a client has a twin; record one in which each draft node writes one text"
        )
    if acceptance is None and not run.node.is_barrier:
        raise ConfigError("a twin has other continuous rounds than the run: it needs to know what else would agree")
    sizes = [(opened.prompt_len, _num_tokens(run, opened)) for opened in sessions]
    drafts = [[one for done in run.rounds for one in done.drafts if one.session == at] for at in range(len(sessions))]
    lines = [line_and_step_s(own) for own in drafts]
    return replace(
        like(run.node),
        num_clients=len(sessions),
        num_sessions=1,
        sizes=lambda client, number: sizes[client],
        joins=tuple(opened.joined for opened in sessions),
        verification=tuple(opened.verification or "match" for opened in sessions),
        round_cost=round_cost(run.rounds),
        acceptance=acceptance if acceptance is not None else lambda client, number: Played(drafts[client]),
        draft_cost=tuple(Linear(fixed_s=step_s) for _, step_s in lines),
        latency_s=tuple(latency_s for latency_s, _ in lines),
    )


def like(node: CoreSettings) -> Settings:
    """Returns a world whose verify node has these settings, and room for all texts, which end at their lengths."""
    return Settings(
        num_at_once=1,
        stops=0.0,
        rounds=node.rounds,
        policy=node.policy,
        budget=node.budget,
        eta=node.eta,
        weigh_evidence=node.weigh_evidence,
        beta=node.beta,
        max_round_tokens=node.max_round_tokens,
        num_pages=ROOM,
        page_size=16,
        context_len=ROOM,
    )


def _num_tokens(run: Recording, opened: Opened) -> int:
    """A text that ended by itself ends there for its length."""
    own = [drafted for done in run.rounds for drafted in done.drafts if drafted.session == opened.number]
    stopped = any(drafted.finish_reason == "stop" for drafted in own)
    return max(1, sum(drafted.num_tokens for drafted in own)) if stopped else opened.max_tokens


def round_cost(rounds: Iterable[Round]) -> Linear:
    """A round's duration by what was fed, from all of them."""
    samples = [
        Sample(done.num_tokens, done.num_sessions, done.context_tokens, done.duration_s)
        for done in rounds
        if done.duration_s > 0
    ]
    (term,) = fit_roofline(samples, num_terms=1).terms
    return term


def line_and_step_s(drafts: Iterable[Drafted]) -> tuple[float, float]:
    """Returns one way's seconds, and those of the draft model's step, from the answers to verdicts by their lengths.

    A draft takes a step for each token; the first one catches up, too. Answers of one length do not tell ways from
    steps; then all of it is drafting.
    """
    made = [(len(one.agreed), one.answer_s) for one in drafts if one.agreed and one.answer_s > 0]
    if not made:
        return 0.0, 0.0
    steps, seconds = np.array(made).T
    spread = float(steps.var())
    step_s = float(((steps - steps.mean()) * (seconds - seconds.mean())).mean()) / spread if spread else np.inf
    step_s = min(max(step_s, 0.0), float((seconds / steps).min()))
    return float((seconds - step_s * steps).mean()) / 2, step_s
