"""Reads what a verify node recorded of a run (`--record`): goodput, acceptance and time."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import msgspec
import numpy as np

from experiments.simulation.arrays.optimum import utility_of
from goodspeed.fair.policies.base import Floats
from goodspeed.serving.measuring.recording import AnyLine, Drafted, Opened, Round

FEW = 5
"""Trials below which a position's own share of agreement says too little; that of all positions is taken."""


class Gap(RuntimeError):
    """A recording lacks lines."""


class Trial(NamedTuple):
    """Tokens that a session might draft, and what came of them."""

    permitted: int
    draft: Drafted


@dataclass(frozen=True)
class Run:
    """Rounds in which all clients took part: the first is the one after the last client had its first token."""

    clients: tuple[str, ...]
    sessions: Mapping[int, Opened]  # by number
    before: tuple[Round, ...]  # rounds until then
    rounds: tuple[Round, ...]
    wall_s: Mapping[str, float]  # time of these rounds, by phase

    @cached_property
    def tokens(self) -> Floats:
        """Tokens that each client got [rounds, clients]."""
        found = np.zeros((len(self.rounds), len(self.clients)))
        for row, done in zip(found, self.rounds, strict=True):
            for one in done.drafts:
                row[self._place(one)] += one.num_tokens
        return found

    @cached_property
    def estimates(self) -> Floats:
        """Returns each client's goodput as the verify node estimated it before each round [rounds, clients]."""
        known, found = np.zeros(len(self.clients)), []
        for done in (*self.before, *self.rounds):
            found.append(known.copy())
            for one in done.drafts:
                known[self._place(one)] = one.goodput
        return np.array(found[len(self.before) :])

    @property
    def utility(self) -> Floats:
        """U of the mean goodput so far [rounds]; -inf as long as a client has had nothing."""
        with np.errstate(divide="ignore"):
            return utility_of(self.tokens.cumsum(axis=0) / np.arange(1, len(self.rounds) + 1)[:, None])

    @property
    def seconds(self) -> float:
        last = self.rounds[-1]
        return last.started_s + last.duration_s - self.rounds[0].started_s

    @property
    def tokens_per_s(self) -> Floats:
        """Tokens a second of each client [clients]."""
        found: Floats = self.tokens.sum(axis=0) / self.seconds
        return found

    @property
    def presence(self) -> Floats:
        """Share of rounds that gave a client tokens [clients]: the others lie between two texts, or prefill."""
        found: Floats = (self.tokens > 0).mean(axis=0)
        return found

    def trials(self, client: int) -> list[Trial]:
        """All that a client might draft, also before everybody took part."""
        permitted: dict[int, int] = {}  # by session
        found = []
        for done in (*self.before, *self.rounds):
            for one in done.drafts:
                if self._place(one) == client and permitted.get(one.session):
                    found.append(Trial(permitted[one.session], one))
                permitted[one.session] = one.may_draft
        return found

    def drafts(self, client: int) -> list[Drafted]:
        """Every result that a client had."""
        return [one for done in (*self.before, *self.rounds) for one in done.drafts if self._place(one) == client]

    def sizes(self, client: int) -> list[tuple[int, int]]:
        """Tokens of prompt and text of each text of a client that ended, or of all if none did."""
        written: dict[int, int] = {}
        ended = []
        for one in self.drafts(client):
            written[one.session] = written.get(one.session, 0) + one.num_tokens
            ended += [one.session] if one.finish_reason is not None else []
        return [(self.sessions[number].prompt_len, max(1, written[number])) for number in ended or written]

    def _place(self, one: Drafted) -> int:
        return self.clients.index(self.sessions[one.session].client)


def collect(events: Iterable[Mapping[str, Any]], clients: Sequence[str], num_rounds: int) -> Run:
    """Reads events until so many rounds are there in which all clients took part. Raises Gap."""
    sessions: dict[int, Opened] = {}
    waiting = set(clients)
    before: list[Round] = []
    rounds: list[Round] = []
    wall_s: Mapping[str, float] = {}  # of all rounds so far
    began_s: Mapping[str, float] = {}
    for event in events:
        kind = event["event"]
        if kind == "dropped":
            raise Gap("the verify node's events were read too slowly, so that the recording has gaps; run it again")
        if kind == "round":  # that of a round comes before what is recorded of it
            wall_s = event["wall_s"]
        if kind != "recorded":
            continue
        line: AnyLine = msgspec.convert(event["line"], AnyLine)
        if isinstance(line, Opened):
            sessions[line.number] = line
        elif waiting:
            before.append(line)
            waiting -= {sessions[one.session].client for one in line.drafts}
            began_s = wall_s
        else:
            rounds.append(line)
            if len(rounds) == num_rounds:
                spent_s = {phase: wall_s[phase] - began_s[phase] for phase in wall_s}
                return Run(tuple(clients), sessions, tuple(before), tuple(rounds), spent_s)
    raise Gap(f"the recording ends after {len(rounds)} of {num_rounds} rounds with all clients")


def survival(trials: Sequence[Trial], length: int) -> Floats:
    """The probability that the first s drafted tokens are all accepted [length], whatever lengths were permitted.

    As Kaplan and Meier estimate it: the product over the positions of the share that agrees of the drafts that are
    right so far and might be so long. What n-grams do not propose does not agree. min(1, p/q) is taken where it was
    recorded, under the ratio rule. Holds for rounds that wait for every draft.
    """
    at_risk, agreed = np.zeros(length), np.zeros(length)
    for permitted, draft in trials:
        shares = draft.ratios or tuple(map(float, draft.agreed))
        most = permitted if draft.finish_reason is None else len(shares)  # a text's last draft ends where the text does
        for position in range(min(length, most, draft.num_accepted + 1)):
            at_risk[position] += 1
            agreed[position] += shares[position] if position < len(shares) else 0.0
    everywhere = agreed.sum() / max(1.0, at_risk.sum())
    curve: Floats = np.where(at_risk >= FEW, agreed / np.maximum(at_risk, 1.0), everywhere)
    return np.minimum(curve, 1.0).cumprod()
