"""The runs of a demo: their order, and the answers of each."""

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from goodspeed.app.demo.options import Client

Way: TypeAlias = Literal["with drafts", "the target alone"]
WITH_DRAFTS: Way = "with drafts"
ALONE: Way = "the target alone"

ORDER = (WITH_DRAFTS, ALONE, ALONE, WITH_DRAFTS)
"""The runs. A machine that gets faster or slower meanwhile favours neither way; what only a first run costs is told
against drafts."""


@dataclass
class Answer:
    """A client's answer in one run, as far as it has come."""

    client: Client
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str = ""  # empty: not finished
    elapsed_s: float = 0.0  # from the question to the latest token
    counts: dict[str, Any] = field(default_factory=dict)  # `usage.goodspeed`, at the end

    @property
    def tokens_per_s(self) -> float:
        return len(self.token_ids) / self.elapsed_s if self.elapsed_s else 0.0


@dataclass
class Run:
    """All questions once."""

    way: Way
    answers: list[Answer]
    elapsed_s: float = 0.0

    @property
    def num_tokens(self) -> int:
        return sum(len(answer.token_ids) for answer in self.answers)
