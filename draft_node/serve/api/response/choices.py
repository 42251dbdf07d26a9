"""One text of a request as far as it is written, and what an answer says of all of them: which models, and usage."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from draft_node.core.actions import by_source
from draft_node.core.counts import total
from draft_node.parsing.parts import Call
from draft_node.serve.api.request.wanted import Wish
from draft_node.serve.api.response.responses import (
    CompletionDetails,
    KeptSlo,
    PromptTokensDetails,
    Speculation,
    Usage,
)
from draft_node.serve.service import Begun, Ended, Piece, Token
from draft_node.text.tokens import PromptTokens
from goodspeed.slo.kept import Kept


@dataclass(slots=True)
class Choice:
    """One text so far."""

    text: str = ""
    thinking: str = ""
    calls: list[Call] = field(default_factory=list)
    tokens: list[Token] = field(default_factory=list)
    ended: Ended | None = None
    target_fingerprint: str | None = None
    num_local: int = 0  # tokens so far that the draft model wrote alone
    prompt: PromptTokens | None = None  # with log-probabilities, once they are there

    def take(self, item: Begun | Piece | Ended) -> None:
        match item:
            case Begun():
                self.text, self.thinking, self.calls, self.tokens, self.num_local = "", "", [], [], 0
                self.prompt = None
                self.target_fingerprint = item.target_fingerprint
            case Piece():
                self.text += item.text
                self.thinking += item.thinking
                self.calls += [piece.call for piece in item.parts if piece.call is not None]
                self.tokens += item.tokens
                self.num_local += sum(token.local for token in item.tokens)
                self.prompt = item.prompt or self.prompt
            case Ended():
                self.ended, self.num_local = item, item.num_local


def system_fingerprint_of(wish: Wish, choices: Sequence[Choice]) -> str | None:
    """Which models the text depends on: the target, and under the ratio rule the draft model too.

    None where not all of it is from one target: some of it the draft model wrote alone, or choices differ.
    """
    targets = {choice.target_fingerprint for choice in choices}
    if len(targets) != 1 or None in targets or any(choice.num_local for choice in choices):
        return None
    parts = [*targets, *([wish.draft_fingerprint] if wish.texts[0].verification == "ratio" else [])]
    return "_".join(["fp", *map(str, parts)])


def usage_of(wish: Wish, choices: Sequence[Choice]) -> Usage:
    """So far; what drafting did is known of texts that are complete."""
    num_tokens = sum(choice.ended.num_tokens if choice.ended else len(choice.tokens) for choice in choices)
    all_of = total(*(choice.ended.statistics for choice in choices if choice.ended))
    told = Speculation(
        rounds=all_of.num_rounds,
        drafted=all_of.num_drafted,
        accepted=all_of.num_accepted,
        local=sum(choice.num_local for choice in choices),
        drafted_by=by_source(all_of.drafted),
        accepted_by=by_source(all_of.accepted),
    )
    kept = [choice.ended.kept for choice in choices if choice.ended and choice.ended.kept]
    if kept and len(kept) == len(choices):
        told.slo = _slo(kept)  # left out where nothing was asked for, and before all is known
    usage = Usage(
        prompt_tokens=wish.num_prompt_tokens,
        completion_tokens=num_tokens,
        total_tokens=wish.num_prompt_tokens + num_tokens,
        prompt_tokens_details=PromptTokensDetails(cached_tokens=_num_cached(wish, choices)),
        goodspeed=told,
    )
    details = _details(wish, choices, all_of.accepted["ngram"])
    if details.model_fields_set:
        usage.completion_tokens_details = details
    return usage


def _details(wish: Wish, choices: Sequence[Choice], num_ngram: int) -> CompletionDetails:
    """num_ngram: tokens that n-gram drafts brought into the texts."""
    details = CompletionDetails()
    if wish.thinks:
        details.reasoning_tokens = sum(choice.ended.num_thinking for choice in choices if choice.ended)
    if num_predicted := sum(len(text.prediction) for text in wish.texts):
        details.accepted_prediction_tokens = min(num_ngram, num_predicted)
        details.rejected_prediction_tokens = num_predicted - details.accepted_prediction_tokens
    return details


def _num_cached(wish: Wish, choices: Sequence[Choice]) -> int:
    """Tokens of the prompts that were not read: of each prompt by the choice for which the fewest were in memory.

    The other choices find what that one has read.
    """
    fewest: dict[tuple[int, ...], int] = {}
    for wanted, choice in zip(wish.texts, choices, strict=True):
        num_cached = choice.ended.statistics.num_cached if choice.ended else 0
        fewest[wanted.prompt] = min(fewest.get(wanted.prompt, num_cached), num_cached)
    return sum(fewest.values())


def _slo(kept: Sequence[Kept]) -> KeptSlo:
    """What is told of a request with objectives: its tier, the longest times of its texts, and whether all attained."""
    told = [one.described() for one in kept]
    longest = {
        name: max((one[name] for one in told if one[name] is not None), default=None) for name in ("ttft_ms", "tpot_ms")
    }
    promised = [one["promised"] for one in told]
    return KeptSlo(
        tier=told[0]["tier"],
        **longest,
        attained=all(one["attained"] for one in told),
        promised=None if None in promised else all(promised),
    )
