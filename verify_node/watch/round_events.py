"""The events of rounds (`--json`): a round's totals, and a row for each session that moved. Decides nothing."""

from collections.abc import Iterable, Mapping

from goodspeed.wire.messages import Verdict
from verify_node.scheduler.round import Round
from verify_node.session.session import Session


def round_event(done: Round, verdicts: Iterable[Verdict], sessions: Mapping[bytes, Session]) -> dict[str, object]:
    """Returns the fields of a round's event; its sessions must still be open."""
    rows = [(verdict, sessions[verdict.session_id]) for verdict in verdicts]
    return {
        "number": done.number,
        "num_drafted": done.num_drafted,
        "num_tokens": done.num_tokens,
        "deferred": len(done.deferred),
        "preempted": len(done.preempted),
        "may_draft": {verdict.session_id.hex(): verdict.may_draft for verdict, _ in rows},
        "sessions": [_row(verdict, session) for verdict, session in rows],
    }


def _row(verdict: Verdict, session: Session) -> dict[str, object]:
    return {
        "client": session.client.name,
        "session": verdict.session_id.hex(),
        "num_verified": verdict.num_verified,
        "num_accepted": verdict.num_accepted,
        "num_tokens": len(verdict.tokens),
        "may_draft": verdict.may_draft,
        "acceptance_rate": round(session.acceptance.value, 4),
        "goodput": round(session.client.goodput.value, 4),
        "draft_s_per_token": round(session.client.draft_s_per_token, 6),
        "round_trip_s": round(session.round_trip_s, 6),
    }
