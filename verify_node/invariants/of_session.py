"""What must hold of one session, and of one client, between any two events. Changes nothing.

Knows nothing about other sessions, memory or rounds.
"""

from collections.abc import Iterator
from typing import TypeAlias

from verify_node.session.client import MAX_LATE, Client
from verify_node.session.phase import Phase
from verify_node.session.session import Session

Claim: TypeAlias = tuple[bool, str]
"""Whether it holds, and what is wrong if it does not."""


def claims_on_session(session: Session) -> Iterator[Claim]:
    """Everything that a session's own fields must agree on."""
    yield from _phase(session)
    yield from _draft(session)
    yield from _text(session)
    yield from _acknowledged(session)


def claims_on_client(client: Client, num_rounds: int) -> Iterator[Claim]:
    """num_rounds: verify rounds begun so far."""
    yield 0 <= client.num_late <= MAX_LATE, f"{client.num_late} drafts are late"
    yield 0.0 <= client.ahead_share <= 1.0, f"the share of drafts made ahead is {client.ahead_share}"
    times = (client.draft_s_per_token, client.round_trip_s, client.offer_s)
    yield min(times) >= 0.0, f"one of the smoothed times {times} is negative"
    yield client.num_accepted <= client.num_drafted, "more drafted tokens were accepted than verified"
    yield client.observed_round <= num_rounds, f"it was observed in round {client.observed_round}, which never began"
    yield (client.zero_since or 0) <= num_rounds, f"it waits since round {client.zero_since}, which never began"


def _phase(session: Session) -> Iterator[Claim]:
    phase, assigned = session.phase, session.assigned
    yield phase is not Phase.COMMITTED, "its round is over and nothing is assigned"
    yield (phase is Phase.OPENED) == (session.last_verdict is None), "its phase and its last verdict disagree"
    yield (phase is Phase.FINISHED) == (session.finish_reason is not None), f"it ends for {session.finish_reason!r}"
    if phase is Phase.OPENED:
        yield assigned is None, f"{assigned} tokens are assigned before the first verdict"
    if phase is Phase.ADVANCING:
        yield assigned == 0, f"{assigned} tokens are assigned and their draft is not awaited"
    if phase in (Phase.AWAITING, Phase.DRAFTED):
        yield bool(assigned), f"{assigned} tokens are assigned"
        yield (assigned or 0) <= session.max_length, f"{assigned} tokens are assigned and {session.max_length} fit"
    if phase is Phase.AWAITING:
        yield not session.cannot_draft, "a draft is awaited from a draft node that cannot draft"


def _draft(session: Session) -> Iterator[Claim]:
    draft, ahead, phase = session.draft, session.ahead, session.phase
    yield (draft is not None) == (phase is Phase.DRAFTED), "its phase and its draft disagree"
    if draft is not None:
        yield len(draft.tokens) <= (session.assigned or 0), f"its draft exceeds the {session.assigned} assigned"
        yield draft.base_len == len(session.tokens), f"its draft is on {draft.base_len} tokens"
        yield draft.round > session.last_round, f"its draft is of round {draft.round}, which is answered"
        yield bool(draft.tokens) != session.cannot_draft, "its draft and `cannot_draft` disagree"
    if session.offered is not None:
        yield session.offered.base_len == len(session.tokens), "its offered tokens do not follow its text"
        yield bool(session.offered.tokens) and not session.finished, "it has an offer of which nothing is left"
    if ahead is not None:
        yield phase in (Phase.AWAITING, Phase.DRAFTED, Phase.ADVANCING), "a draft made ahead is kept for nothing"
        yield ahead.round > session.last_round, f"a draft made ahead is of round {ahead.round}, which is answered"
        yield bool(ahead.tokens), "a draft made ahead is empty"
    yield 0.0 <= session.hope <= 1.0, f"hope is {session.hope}"
    yield 0.0 <= session.ahead_share <= 1.0, f"the share of drafts made ahead is {session.ahead_share}"
    yield 0.0 <= session.share <= 1.0, f"its share of rounds is {session.share}"


def _text(session: Session) -> Iterator[Claim]:
    given = len(session.opened.prompt) + len(session.opened.committed)
    num_tokens, phase = len(session.tokens), session.phase
    yield given <= num_tokens <= session.limit, f"it has {num_tokens} tokens of {given} to {session.limit}"
    if phase is Phase.OPENED:
        yield num_tokens == given, "it has tokens that no verdict told"
    if session.finish_reason == "length":
        yield num_tokens == session.limit, f"it ended at {num_tokens} of {session.limit} tokens for its length"
    if phase is not Phase.FINISHED:
        yield num_tokens < session.limit, "it goes on at its limit"


def _acknowledged(session: Session) -> Iterator[Claim]:
    num_tokens, lengths = len(session.tokens), [length for length, _ in session.sent]
    yield session.acked <= num_tokens, f"{session.acked} tokens of {num_tokens} are acknowledged"
    yield lengths == sorted(lengths), "its unacknowledged verdicts are out of order"
    yield not lengths or session.acked <= lengths[0], "a verdict that is acknowledged is still awaited"
    yield not lengths or lengths[-1] <= num_tokens, "a verdict told more tokens than there are"
    wanted = session.num_unacknowledged if session.opened.num_logprobs is not None else 0
    known, given = session.prompt_logprobs, len(session.opened.prompt) + len(session.opened.committed)
    yield known is None or len(known) < len(session.opened.prompt), "more is told of its prompt than that has"
    yield known is None or session.acked == given, "what was told of its prompt is kept after its first verdict"
    yield not session.lacks_prompt_logprobs or session.phase is Phase.OPENED, "its prompt is not told and it went on"
    yield len(session.logprobs) == wanted, f"{len(session.logprobs)} logprobs are kept for {wanted} tokens"
