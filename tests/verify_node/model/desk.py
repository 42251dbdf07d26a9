"""A verify node with a real target, a microscopic one unless another is given, and what that writes alone."""

from typing import Any

from draft_node.core.generation import Generation
from goodspeed.app import reference
from goodspeed.wire.messages import OpenSession
from tests.fakes import Desk, make_core
from tests.micro import make_checkpoint, make_engine
from verify_node.model.target import Target

TARGET = make_checkpoint(1)


def make_target(*, records: bool = False, **options: Any) -> Target:
    """options: of the engine."""
    return Target(TARGET, make_engine(TARGET, **options), records=records)


def alone(asked: OpenSession | Generation) -> tuple[int, ...]:
    """Returns what TARGET writes by itself, one token at a time."""
    options: dict[str, Any] = {"min_tokens": asked.min_tokens, "rules": asked.logit_rules}
    wanted = asked.prompt, asked.sampling, asked.max_tokens, asked.stop_ids
    return tuple(reference.generate(TARGET, make_engine(TARGET), *wanted, **options))


class RealDesk(Desk):
    """A verify node with a real target."""

    def __init__(self, real: Target | None = None, **options: Any) -> None:
        self.real = real or make_target()
        engine = self.real.engine
        settings: dict[str, Any] = {"vocab_size": engine.checkpoint.num_tokens, "context_len": 128} | options
        super().__init__(core=make_core(pool=engine.pool, **settings))
        self.target.run = lambda planned: self.real.run(planned).outcomes  # type: ignore[method-assign]
