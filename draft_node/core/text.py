"""The text of a session as the draft node has it: its prompt, and the committed tokens, each applied exactly once.

A verdict may come again, or overlap with what is there, or be the one after a lost one; what is new of it is applied,
and a gap is asked for.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from draft_node.core.actions import Fail, Finish, Request
from goodspeed.wire.messages import OpenSession, TokenLogprobs, Verdict

TARGET_CHANGED = "the verify node has another target model now, and a text is not continued by another; ask again"


class News(NamedTuple):
    """The new part of a verdict."""

    tokens: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...]  # one for each of tokens, or none
    of_prompt: tuple[TokenLogprobs, ...] | None  # once, where they are wanted


@dataclass(slots=True, eq=False)
class Text:
    """One session's text; nobody else changes it."""

    request: Request
    tokens: list[int] = field(init=False)  # prompt and committed
    first_at: float | None = None  # when its user had the first token
    _lacks_prompt_logprobs: bool = field(init=False)  # they are wanted, and have not come
    _lacking_at: int = -1  # length of the text at which it was said that something is missing

    def __post_init__(self) -> None:
        self.tokens = list(self.request.prompt)
        self._lacks_prompt_logprobs = self.request.num_prompt_logprobs is not None

    @property
    def committed(self) -> tuple[int, ...]:
        return tuple(self.tokens[len(self.request.prompt) :])

    def opened(self) -> None:
        """A verify node is told all of it: what it said before is of no use any more."""
        self._lacking_at = -1

    def open(self, epoch: int, now: float, *, num_hops: int) -> OpenSession:
        """The message that opens the session with all that is committed."""
        num_prompt_logprobs = self.request.num_prompt_logprobs if self._lacks_prompt_logprobs else None
        return self.request.open(
            epoch,
            self.committed,
            now,
            first_at=self.first_at,
            num_hops=num_hops,
            num_prompt_logprobs=num_prompt_logprobs,
        )

    def asks_for_gap(self) -> bool:
        """A verdict begins beyond its end. Returns whether to ask for what is missing: once per gap.

        It is asked for again after a silence: on a slow line hundreds of verdicts may follow the lost one. The verify
        node answers each Ack with everything unacknowledged, and would take one Ack per verdict for a flood.
        """
        if self._lacking_at == len(self.tokens):
            return False
        self._lacking_at = len(self.tokens)
        return True

    def apply(self, verdict: Verdict, now: float) -> News | None:
        """Takes what is new of a verdict that begins in it, or at its end; None where nothing is."""
        num_known = len(self.tokens) - verdict.base_len
        new, logprobs = verdict.tokens[num_known:], (verdict.logprobs or ())[num_known:]
        if not new and verdict.finish_reason is None:
            return None
        self.tokens += new
        self.first_at = now if self.first_at is None and new else self.first_at
        of_prompt = verdict.prompt_logprobs if self._lacks_prompt_logprobs else None
        self._lacks_prompt_logprobs = self._lacks_prompt_logprobs and of_prompt is None
        return News(new, logprobs, of_prompt)

    def write(self, token: int, now: float) -> None:
        """The draft model wrote this token, alone."""
        self.tokens.append(token)
        self.first_at = now if self.first_at is None else self.first_at


def text_end(
    num_prompt: int, num_tokens: int, context_len: int | None, *, before: str | None, now: str
) -> Finish | Fail | None:
    """Why a text of so many tokens, its prompt included, does not go on; None: it does.

    A session is one target's: it fails when another one is there, since what that one would write, and what would
    end its text, is not known here. Whoever asked may begin another session.

    context_len: of the target that is there; None: not known. before, now: fingerprints of the text's target, None
    until there was one, and of the one that is there.
    """
    if before not in (None, now):
        return Fail("target_changed", TARGET_CHANGED)
    if context_len is None or num_tokens < context_len:
        return None
    if num_tokens > num_prompt:
        return Finish("length")  # the draft model may have written some of it alone
    what = f"{num_tokens} tokens leave no room in the target's context of {context_len}; shorten the prompt"
    return Fail("prompt", what)


def unserved(request: Request, *, constraints: bool, promises: bool, begins: bool) -> Fail | None:
    """Why a verify node that serves these cannot write the text as it is asked for; None: it can.

    begins: nothing of the text is there yet. One that is under way goes on though its SLO is not promised.
    """
    if request.constraint is not None and not constraints:
        return Fail("unsupported", "the verify node does not know structured output; ask without")
    insists = request.slo is not None and request.otherwise == "refuse" and begins
    if insists and not promises:
        return Fail("not_promised", "this verify node promises no service level; ask for best_effort otherwise")
    return None
