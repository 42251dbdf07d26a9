"""A verify node with a real target, a microscopic one unless another is given, and what that writes alone."""

from random import Random
from typing import Any

from msgspec.structs import replace

from draft_node.core.generation import Generation
from goodspeed.app import reference
from goodspeed.wire.generation import LogitRules, TokenBias
from goodspeed.wire.messages import OpenSession, Sampling
from tests.fakes import Desk, make_core, make_open
from tests.micro import VOCAB, make_checkpoint, make_engine
from verify_node.model.target import Target
from verify_node.scheduler.round import Entry, Outcome, Round

TARGET = make_checkpoint(1)

SAMPLINGS = [Sampling(temperature=0.0), Sampling(0.7, seed=3), Sampling(1.0, top_k=9, top_p=0.9, seed=4)]

RULES = [
    None,
    LogitRules(presence_penalty=1.5, frequency_penalty=0.5),
    LogitRules(repetition_penalty=2.0, min_p=0.02),
    LogitRules(min_p=0.2, logit_bias=tuple(TokenBias(token, -4.0) for token in range(0, VOCAB, 3))),
]


def make_target(*, records: bool = False, **options: Any) -> Target:
    """options: of the engine."""
    return Target(TARGET, make_engine(TARGET, **options), records=records)


def outcomes_of(*entries: Entry, target: Target | None = None, number: int = 1) -> list[Outcome]:
    """Returns the outcomes of a round of these entries, of a new target unless one is given."""
    return (target or make_target()).run(Round(number, entries)).outcomes


def other(token: int, by: int = 1) -> int:
    """Another token."""
    return (token + by) % VOCAB


def alone(asked: OpenSession | Generation) -> tuple[int, ...]:
    """Returns what TARGET writes by itself, one token at a time."""
    options: dict[str, Any] = {"min_tokens": asked.min_tokens, "rules": asked.logit_rules}
    wanted = asked.prompt, asked.sampling, asked.max_tokens, asked.stop_ids
    return tuple(reference.generate(TARGET, make_engine(TARGET), *wanted, **options))


def openings(rng: Random, number: int, prompts: list[int], least: int, most: int) -> list[OpenSession]:
    """Sessions of all kinds, with prompts of these lengths and texts of at least and most so many tokens."""
    found = []
    for each in range(number):
        prompt = [rng.randrange(VOCAB) for _ in range(rng.choice(prompts))]
        how: Any = {"sampling": replace(rng.choice(SAMPLINGS), seed=each), "max_tokens": rng.randint(least, most)}
        ends: Any = {"stop_ids": rng.choice([(), (7,)]), "logit_rules": RULES[each % len(RULES)]}
        found.append(make_open(each, prompt=prompt, **how, **ends))
    return found


class RealDesk(Desk):
    """A verify node with a real target."""

    def __init__(self, real: Target | None = None, **options: Any) -> None:
        self.real = real or make_target()
        engine = self.real.engine
        settings: dict[str, Any] = {"vocab_size": engine.checkpoint.num_tokens, "context_len": 128} | options
        super().__init__(core=make_core(pool=engine.pool, **settings))
        self.target.run = lambda planned: self.real.run(planned).outcomes  # type: ignore[method-assign]

    def going_on(self) -> list[Any]:
        """The sessions that are not finished."""
        return [session for session in self.core.sessions.values() if not session.finished]

    def texts(self) -> dict[bytes, tuple[int, ...]]:
        """Those of all sessions."""
        return {key: tuple(one.tokens[len(one.opened.prompt) :]) for key, one in self.core.sessions.items()}
