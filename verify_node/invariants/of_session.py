"""What must hold of one session, and of one client, between any two events. Changes nothing.

Knows nothing about other sessions, memory or rounds.
"""

from collections.abc import Iterator
from typing import TypeAlias

from verify_node.session.client import Client
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
    times = (client.round_trip_s, client.answer_s)
    yield min(times) >= 0.0, f"one of the smoothed times {times} is negative"
    yield client.num_accepted <= client.num_drafted, "more drafted tokens were accepted than verified"
    yield client.observed_round <= num_rounds, f"it was observed in round {client.observed_round}, which never began"


def _phase(session: Session) -> Iterator[Claim]:
    phase = session.phase
    yield (phase is Phase.OPENED) == (session.last_verdict is None), "its phase and its last verdict disagree"
    yield (phase is Phase.FINISHED) == (session.finish_reason is not None), f"it ends for {session.finish_reason!r}"
    if phase is Phase.OPENED:
        yield not session.may_draft, f"{session.may_draft} tokens may be drafted before the first verdict"


def _draft(session: Session) -> Iterator[Claim]:
    drafted = session.drafted
    yield not session.waits or session.may_draft > 0, "a draft is waited for that nobody may make"
    if drafted is not None:
        yield drafted.base_len == len(session.tokens), "its drafted tokens do not follow its text"
        yield bool(drafted.tokens) or drafted.made_on == len(session.tokens), "nothing is left of its draft"
        yield not session.finished, "it has a draft, and is over"


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
