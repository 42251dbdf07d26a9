"""The simulation tells the truth: a demo in real processes, and its twin on a virtual clock.

Under barrier rounds with plain Eq. (5) time decides nothing but in which order and after which rounds the sessions
open, and that is in the recording: all else must be equal, draft by draft. What agrees comes from the shipped
recordings, which are of other runs. Under continuous rounds time decides who takes part, so there are tolerances.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
from msgspec.structs import replace

from experiments.simulation import recordings
from experiments.simulation.replay import Counts
from experiments.simulation.twin import twin
from experiments.simulation.verify import Finished
from experiments.simulation.world import World
from goodspeed import recording
from goodspeed.errors import ConfigError
from goodspeed.messages import Verdict
from goodspeed.recording import Recording

ROOT = Path(__file__).parents[2]
WORDS = ("--clients", "3", "--max-tokens", "50", "--budget", "9", "--cost", "none", "--min-odds", "0")
BARRIER = ("--rounds", "barrier", "--no-draft-ahead")


@dataclass(frozen=True)
class Told:
    """What was decided for one session in one round."""

    client: int
    num_verified: int
    num_accepted: int
    num_tokens: int
    next_length: int
    acceptance_rate: float  # the estimates after it
    goodput: float


@dataclass(frozen=True)
class Seen:
    """A run, real or simulated."""

    rounds: list[list[Told]]
    elapsed_s: float

    @property
    def drafts(self) -> list[Told]:
        return [told for row in self.rounds for told in row if told.num_verified]

    def goodput(self, client: int) -> float:
        """Tokens per verify round, from the first that gave any to the last."""
        took_part = [at for at, row in enumerate(self.rounds) if any(told.client == client for told in row)]
        num_tokens = sum(told.num_tokens for row in self.rounds for told in row if told.client == client)
        return num_tokens / (took_part[-1] - took_part[0] + 1)


def demo(folder: Path, *words: str) -> tuple[Recording, dict[str, Any]]:
    file = folder / "run.jsonl"
    command = [sys.executable, "-m", "goodspeed", "demo", *WORDS, *words, "--record", str(file), "--json"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return recording.load(file), json.loads(ended.stdout.splitlines()[-1])


def really(run: Recording) -> Seen:
    rounds = [
        [
            Told(
                one.session,
                len(one.agreed),
                one.num_accepted,
                one.num_tokens,
                one.next_length,
                one.acceptance_rate,
                one.goodput,
            )
            for one in done.drafts
        ]
        for done in run.rounds
    ]
    last = run.rounds[-1]
    return Seen([sorted(row, key=lambda told: told.client) for row in rounds], last.started_s + last.duration_s)


def simulated(run: Recording, counts: Counts, seed: int = 1) -> Seen:
    rounds: list[list[Told]] = []

    def note(done: Finished) -> None:
        rounds.append(sorted((told(verdict) for verdict in done.verdicts), key=lambda told: told.client))

    def told(verdict: Verdict) -> Told:
        session = world.verify.core.sessions[verdict.session_id]
        return Told(
            client=int(session.client.name.removeprefix("client-")),
            num_verified=verdict.num_verified,
            num_accepted=verdict.num_accepted,
            num_tokens=len(verdict.tokens),
            next_length=verdict.next_length,
            acceptance_rate=round(session.acceptance.value, 6),
            goodput=round(session.client.goodput.value, 6),
        )

    world = World(seed, twin(run, recordings.load(), counts), note)
    world.run(1000.0)
    return Seen(rounds, world.now)


def test_barrier_rounds_are_foretold_draft_by_draft(tmp_path: Path) -> None:
    run, result = demo(tmp_path, *BARRIER)
    counts = Counts()
    real, twins = really(run), simulated(run, counts)
    assert twins.rounds == real.rounds
    assert counts.num_unrecorded == 0
    assert len(real.drafts) > 30
    assert len({told.next_length for told in real.drafts}) > 3
    goodput = {client["name"]: client["goodput"] for client in result["clients"]}
    assert {opened.client: twins.goodput(opened.number) for opened in run.sessions} == goodput
    with pytest.raises(ConfigError, match="one session a client has a twin"):
        twin(replace(run, sessions=(run.sessions[0], *run.sessions[:-1])))


def test_continuous_rounds_are_foretold_on_the_whole(tmp_path: Path) -> None:
    """Each is one draw from its distribution; tolerances are about twice what runs on a busy machine were off."""
    run, result = demo(tmp_path, "--rounds", "continuous")
    counts = Counts()
    real, twins = really(run), simulated(run, counts)
    assert counts.share_unrecorded < 0.02
    assert sum(told.num_tokens for row in twins.rounds for told in row) == result["num_tokens"]
    accepted, truly_accepted = ([told.num_accepted for told in seen.drafts] for seen in (twins, real))
    assert distance(accepted, truly_accepted) < 0.3
    assert mean(accepted) == pytest.approx(mean(truly_accepted), rel=0.2)
    lengths, true_lengths = ([told.num_verified for told in seen.drafts] for seen in (twins, real))
    assert mean(lengths) == pytest.approx(mean(true_lengths), rel=0.3)
    assert len(twins.rounds) == pytest.approx(len(real.rounds), rel=0.2)  # and so rounds per token
    assert twins.elapsed_s == pytest.approx(real.elapsed_s, rel=0.3)


def distance(left: list[int], right: list[int]) -> float:
    """Of two distributions, in total variation: the share of the one that would have to be elsewhere."""
    ours, theirs = Counter(left), Counter(right)
    return sum(abs(ours[key] / len(left) - theirs[key] / len(right)) for key in {*ours, *theirs}) / 2
