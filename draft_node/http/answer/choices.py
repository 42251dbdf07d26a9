"""State of a request's texts while they are generated, and the answer's fingerprint and usage."""

import secrets
import string
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from draft_node.core.counts import total
from draft_node.http.ask.generation import Batch
from draft_node.http.schema.chat import call_of
from draft_node.parsing.formats import Call, ParsedPart, ToolFormat, joined
from draft_node.service.output_processor import Begun, Ended, Item, Piece
from draft_node.service.token_text import PromptTokens, Token
from goodspeed.drafting.sources import by_source
from goodspeed.slo.attainment import Kept

Json: TypeAlias = dict[str, Any]
"""An object of an answer; lists may be iterators, whose members are made one by one while they are serialized."""


@dataclass(slots=True)
class Choice:
    """One text, as generated so far."""

    pieces: list[Piece] = field(default_factory=list)  # empty in streams
    num_tokens: int = 0  # generated so far
    target_fingerprint: str | None = None
    ended: Ended | None = None

    def take(self, item: Item) -> None:
        match item:
            case Begun():
                self.pieces, self.num_tokens = [], 0
                self.target_fingerprint = item.target_fingerprint
            case Piece():
                self.pieces.append(item)
                self.num_tokens += len(item.tokens)
            case Ended():
                self.ended, self.num_tokens = item, item.num_tokens

    @property
    def parts(self) -> list[ParsedPart]:
        return joined(part for piece in self.pieces for part in piece.parts)

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)

    @property
    def tokens(self) -> list[Token]:
        return [token for piece in self.pieces for token in piece.tokens]

    @property
    def prompt(self) -> PromptTokens | None:
        """The prompt with log-probabilities; None: not requested, or not yet known."""
        return next((piece.prompt for piece in self.pieces if piece.prompt is not None), None)


def system_fingerprint_of(batch: Batch, choices: Sequence[Choice]) -> str | None:
    """Identifies the models of the texts: the target, and under the ratio rule also the draft model.

    None if choices have different targets, or have not begun.
    """
    targets = {choice.target_fingerprint for choice in choices}
    if len(targets) != 1 or None in targets:
        return None
    parts = [*targets, *([batch.draft_fingerprint] if batch.texts[0].verification == "ratio" else [])]
    return "_".join(["fp", *map(str, parts)])


def usage_of(batch: Batch, choices: Sequence[Choice]) -> Json:
    """Returns the usage so far; drafting statistics cover complete texts only."""
    num_tokens = sum(choice.num_tokens for choice in choices)
    ended = [choice.ended for choice in choices if choice.ended]
    all_of = total(*(one.statistics for one in ended))
    told: Json = {
        "rounds": all_of.num_rounds,
        "drafted": all_of.num_drafted,
        "accepted": all_of.num_accepted,
        "drafted_by": by_source(all_of.drafted),
        "accepted_by": by_source(all_of.accepted),
    }
    kept = [one.kept for one in ended if one.kept]
    if kept and len(kept) == len(choices):
        told["slo"] = _slo(kept)  # omitted without objectives, and until all texts have ended
    usage: Json = {
        "prompt_tokens": batch.num_prompt_tokens,
        "completion_tokens": num_tokens,
        "total_tokens": batch.num_prompt_tokens + num_tokens,
        "prompt_tokens_details": {"cached_tokens": _num_cached(batch, choices)},
        "goodspeed": told,
    }
    if batch.parser.formats.thinking is not None:
        usage["completion_tokens_details"] = {"reasoning_tokens": sum(one.num_thinking for one in ended)}
    return usage


def _num_cached(batch: Batch, choices: Sequence[Choice]) -> int:
    """Counts the prompts' cached tokens; for each prompt, takes the choice with the fewest.

    The other choices hit the KV cache that this choice prefilled.
    """
    found = [choice.ended.statistics.num_cached if choice.ended else 0 for choice in choices]
    return sum(min(found[first : first + batch.n]) for first in range(0, len(found), batch.n))


LATENCIES = ("ttft_ms", "tpot_ms", "slowest_tpot_ms")


def _slo(kept: Sequence[Kept]) -> Json:
    """Returns a request's tier, its texts' longest latencies, and whether all attained their objectives.

    `promised` is null if the verify node promises nothing, or its answer was lost.
    """
    told = [one.described() for one in kept]
    longest = {name: max((one[name] for one in told if one[name] is not None), default=None) for name in LATENCIES}
    promised = [one["promised"] for one in told]
    return {
        "tier": told[0]["tier"],
        **longest,
        "attained": all(one["attained"] for one in told),
        "promised": None if None in promised else all(promised),
    }


ALPHABET = string.ascii_letters + string.digits


def call_id(tools: ToolFormat | None) -> str:
    """Returns a new call id in the family's format; some families' templates accept no other."""
    form = tools or ToolFormat("", "json", ())
    return form.id_prefix + "".join(secrets.choice(ALPHABET) for _ in range(form.id_length))


def made(call: Call, tools: ToolFormat | None) -> Json:
    """Returns a call in the format of chats, with a new id."""
    return call_of(call_id(tools), call.name, call.arguments)
