"""What a draft or an acknowledgement does to its session, and what is answered at once. No I/O, no clock, no torch.

The answer is nothing (a draft waits for its round), a refusal, or a verdict again, for one that got lost. Knows nothing
about peers, other sessions or rounds.
"""

from typing import TypeAlias

from msgspec.structs import replace

from goodspeed.wire.messages import Ack, Draft, Verdict, Welcome
from verify_node.rounds import late_drafts
from verify_node.session.checks import NOT_ACKNOWLEDGED, Refused, check_ack, check_ahead, check_draft
from verify_node.session.session import Session

Answer: TypeAlias = Refused | Verdict | None

MAX_REPEATS = 100
"""Verdicts that are sent again without an acknowledgement of more. A draft node asks for one after 1, 2, 4 and then
every 8 s, with two messages at most: on a line that lets nothing through that is more than six minutes."""


def take_draft(session: Session, draft: Draft, welcome: Welcome, now: float) -> Answer:
    """A draft for the next round; one that comes again is answered as before."""
    if draft.round == session.last_round and (session.draft is None or session.draft.assumes):
        return repeat(session, session.acked if draft.assumes else draft.base_len)
    if session.draft is not None and draft.round == session.draft.round:
        return None
    if draft.assumes:
        return _take_ahead(session, draft, welcome, now)
    if refused := check_draft(draft, session, welcome.vocab_size):
        return refused
    session.draft = draft
    late_drafts.on_time(session.client)
    session.ready_since = now
    session.cannot_draft = not draft.tokens
    if draft.tokens:
        session.client.observe_drafting(draft.drafting_s, len(draft.tokens))
        session.observe_ahead(False)
    session.acknowledge(draft.base_len, now - draft.drafting_s)
    return None


def _take_ahead(session: Session, draft: Draft, welcome: Welcome, now: float) -> Answer:
    """A draft that hopes for a verdict: kept until that is made, or taken at once when it came after it.

    Its base is no acknowledgement, since it was sent before the verdict arrived.
    """
    if refused := check_ahead(draft, welcome):
        return refused
    awaited = session.awaits_draft
    session.hope_for(draft)
    if awaited and not session.awaits_draft:
        session.ready_since = now
    return None


def take_ack(session: Session, ack: Ack, round_s: float, now: float) -> Answer:
    """What the draft node has; whatever it lacks is sent again when it says so twice."""
    if refused := check_ack(ack, session):
        return refused
    if ack.base_len > session.acked:
        if not session.is_ready(session.window(round_s)):
            session.ready_since = now
        session.acknowledge(ack.base_len, now)
        return repeat(session, ack.base_len) if session.finished else None
    lacking = ack.base_len < len(session.tokens) or session.finished
    return repeat(session, ack.base_len) if lacking else None


def repeat(session: Session, base_len: int) -> Answer:
    """Everything from base_len on that is not acknowledged, in one verdict; nothing when there is none yet."""
    last = session.last_verdict
    if last is None or base_len > len(session.tokens):
        return None
    session.num_repeats += 1
    if session.num_repeats > MAX_REPEATS:
        return NOT_ACKNOWLEDGED
    session.sent.clear()  # which of the two an answer is to, cannot be told
    first = max(base_len, session.acked)  # a later word that came sooner acknowledged more
    return replace(last, base_len=first, tokens=tuple(session.tokens[first:]), logprobs=session.logprobs_from(first))
