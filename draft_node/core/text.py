"""A session's text at the draft node: the prompt and the committed tokens, each applied exactly once.

A verdict may be a duplicate, overlap with the text, or follow a lost verdict. Its new tokens are applied; the tokens of
a gap are requested.
"""

from dataclasses import dataclass, field

from draft_node.core.actions import Deliver, Fail, Finish
from draft_node.core.generation import Generation
from goodspeed.wire.handshake import Welcome
from goodspeed.wire.messages import OpenSession, Slo, Verdict

TARGET_CHANGED = "the verify node has another target model now, which cannot continue this text; ask again"


@dataclass(slots=True, eq=False)
class Text:
    """One session's text; changed by its methods only."""

    request: Generation
    tokens: list[int] = field(init=False)  # prompt and committed
    first_at: float | None = None  # when the user got the first token
    _lacks_prompt_logprobs: bool = field(init=False)  # requested, not yet received
    _lacking_at: int = -1  # length of the text when missing tokens were last requested

    def __post_init__(self) -> None:
        self.tokens = list(self.request.prompt)
        self._lacks_prompt_logprobs = self.request.num_prompt_logprobs is not None

    @property
    def committed(self) -> tuple[int, ...]:
        return tuple(self.tokens[len(self.request.prompt) :])

    def open(self, epoch: int, now: float, *, num_hops: int) -> OpenSession:
        """Returns the message that opens the session with all committed tokens, so that none are missing any more.

        num_hops: redirects since the latest token.
        """
        self._lacking_at = -1
        request = self.request
        return OpenSession(
            session_id=request.session_id,
            epoch=epoch,
            prompt=request.prompt,
            committed=self.committed,
            sampling=request.sampling,
            max_tokens=request.max_tokens,
            stop_ids=request.stop_ids,
            verification=request.verification,
            max_draft=request.max_draft if request.drafter != "none" else 0,
            slo=self._slo(now),
            constraint=request.constraint,
            num_logprobs=request.num_logprobs,
            min_tokens=request.min_tokens,
            drafter=request.drafter,
            otherwise=request.otherwise,
            hops=num_hops,
            logit_rules=request.logit_rules,
            cache_salt=request.cache_salt,
            num_prompt_logprobs=request.num_prompt_logprobs if self._lacks_prompt_logprobs else None,
        )

    def _slo(self, now: float) -> Slo | None:
        """Returns the objectives with the times since the user asked, and since the user got the first token."""
        objectives = self.request.slo
        if objectives is None:
            return None
        since_first_s = None if self.first_at is None else now - self.first_at
        return Slo(objectives, max(0.0, now - self.request.asked_at), since_first_s)

    def asks_for_gap(self) -> bool:
        """Returns True if an Ack should now request the tokens missing before a verdict: once per gap.

        Only the retransmission timer requests them again. On a slow link hundreds of verdicts may follow the lost one.
        The verify node answers each Ack with all unacknowledged tokens, and would treat an Ack per verdict as a flood.
        """
        if self._lacking_at == len(self.tokens):
            return False
        self._lacking_at = len(self.tokens)
        return True

    def is_exceeded_by(self, verdict: Verdict) -> bool:
        """Returns True if the verdict's tokens reach beyond max_tokens, which no honest verify node sends."""
        return verdict.base_len + len(verdict.tokens) > len(self.request.prompt) + self.request.max_tokens

    def apply(self, verdict: Verdict, now: float) -> Deliver | None:
        """Appends a verdict's new tokens, and returns them. None: nothing is new, not even the end.

        The verdict begins within the text or at its end.
        """
        num_known = len(self.tokens) - verdict.base_len
        new, logprobs = verdict.tokens[num_known:], (verdict.logprobs or ())[num_known:]
        if not new and verdict.finish_reason is None:
            return None
        self.tokens += new
        self.first_at = now if self.first_at is None and new else self.first_at
        prompt_logprobs = verdict.prompt_logprobs if self._lacks_prompt_logprobs else None
        self._lacks_prompt_logprobs = self._lacks_prompt_logprobs and prompt_logprobs is None
        return Deliver(new, logprobs, prompt_logprobs)

    def end_at(self, welcome: Welcome, target: str | None) -> Finish | Fail | None:
        """Returns the reason why a verify node cannot continue the text; None: it can.

        A session belongs to one target and fails at another, because this node does not know the other target's stop
        ids. The user may start another session. A text in progress continues even if its SLO is not promised.

        target: fingerprint of the text's target; None: none so far.
        """
        request, num_tokens, begins = self.request, len(self.tokens), not self.committed
        if target not in (None, welcome.target_fingerprint):
            return Fail("target_changed", TARGET_CHANGED)
        if num_tokens >= welcome.context_len:
            if not begins:
                return Finish("length")  # it fills the context
            room = f"no room in the target's context of {welcome.context_len}"
            return Fail("prompt", f"{num_tokens} tokens leave {room}; shorten the prompt")
        if request.constraint is not None and not welcome.constraints:
            return Fail("unsupported", "the verify node does not support structured output; ask without it")
        if request.slo is not None and request.otherwise == "refuse" and begins and not welcome.promises:
            return Fail("not_promised", "this verify node promises no service level; ask for best_effort otherwise")
        return None
