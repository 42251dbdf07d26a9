"""Writes a verify node's events for a recording: each session's drafts, their agreement, and the times.

Exists only with `--record`. Observes messages and rounds, and changes nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from goodspeed.serving.events import EventLog
from goodspeed.serving.measuring.recording import Drafted, Opened, Round
from goodspeed.wire.channels import Received
from goodspeed.wire.messages import Draft, OpenSession, Verdict
from verify_node.core.core import VerifyCore
from verify_node.scheduler import round as rounds
from verify_node.scheduler.round import Outcome
from verify_node.session.session import Session

EVENT = "recorded"


@dataclass(slots=True)
class _Known:
    """The recorder's state of one session."""

    number: int
    answered_at: float = 0.0  # time of its latest verdict
    drafted_at: float | None = None  # time of its newest draft since then; None: there was none
    num_bytes: int = 0  # of that draft


@dataclass(slots=True)
class RoundRecorder:
    """Records sessions, drafts and rounds; `now` is the time by the node's clock."""

    events: EventLog
    _known: dict[bytes, _Known] = field(default_factory=dict)  # open sessions, and those closed since one opened
    _num_opened: int = 0
    _began: float = 0.0
    _idle_since: float = 0.0

    def heard(self, received: Received, core: VerifyCore, now: float) -> None:
        """Records a message unless it was refused: anybody could send any number of refused messages."""
        peer, message = core.peers.get(received.peer), received.message
        if peer is None or not isinstance(message, Draft | OpenSession):
            return
        session = core.sessions.get(message.session_id)
        if session is None or session.client is not peer.client:
            return
        if isinstance(message, OpenSession):
            self._opened(session, peer.hello.draft_model, core, now)
        elif session.drafts.newest is not None and session.drafts.newest.made_on == message.base_len:
            known = self._known[message.session_id]
            known.drafted_at, known.num_bytes = now, received.num_bytes

    def _opened(self, session: Session, draft_model: str, core: VerifyCore, now: float) -> None:
        """Records that a session opened; a reopened one is known, unless another opened after it was closed."""
        if session.session_id in self._known:
            return
        number = self._num_opened
        self._num_opened += 1
        if not number:
            self._began = self._idle_since = now
        self._known = {key: known for key, known in self._known.items() if key in core.sessions}
        self._known[session.session_id] = _Known(number)
        opened = session.opened
        self._write(
            Opened(
                number=number,
                client=session.client.name,
                draft_model=draft_model,
                seed=opened.sampling.seed,
                prompt_len=len(opened.prompt),
                max_tokens=opened.max_tokens,
                joined=core.rounds.num_rounds,
                verification=opened.verification,
                temperature=opened.sampling.temperature,
                top_k=opened.sampling.top_k,
                top_p=opened.sampling.top_p,
            )
        )

    def finished(
        self,
        done: rounds.Round,
        outcomes: Iterable[Outcome],
        verdicts: Sequence[Verdict],
        sessions: Mapping[bytes, Session],
        started: float,
        now: float,
    ) -> None:
        """Records a finished round."""
        decided = {outcome.session_id: outcome for outcome in outcomes}
        bases = {entry.session_id: entry.base_len for entry in done.entries}
        line = Round(
            number=done.number,
            started_s=_seconds(started - self._began),
            waited_s=_seconds(started - self._idle_since),
            duration_s=_seconds(now - started),
            num_tokens=done.num_tokens,
            num_sessions=len(done.entries),
            context_tokens=done.context_tokens,
            drafts=tuple(
                self._drafted(verdict, decided[session.session_id], session, bases[session.session_id], now)
                for verdict, session in ((verdict, sessions[verdict.session_id]) for verdict in verdicts)
            ),
        )
        self._idle_since = now
        self._write(line)

    def _drafted(self, verdict: Verdict, outcome: Outcome, session: Session, base_len: int, now: float) -> Drafted:
        known, decisions = self._known[verdict.session_id], outcome.decisions
        line = Drafted(
            session=known.number,
            base_len=base_len,
            agreed="".join("01"[agreed] for agreed in decisions.agreed) if decisions else "",
            ratios=tuple(round(ratio, 4) for ratio in decisions.ratios) if decisions else (),
            num_accepted=verdict.num_accepted,
            num_tokens=len(verdict.tokens),
            may_draft=verdict.may_draft,
            acceptance_rate=round(session.acceptance.value, 6),
            goodput=round(session.client.goodput.value, 6),
            num_bytes=known.num_bytes,
            answer_s=0.0 if known.drafted_at is None else _seconds(max(0.0, known.drafted_at - known.answered_at)),
            finish_reason=verdict.finish_reason,
        )
        known.answered_at, known.drafted_at, known.num_bytes = now, None, 0
        return line

    def _write(self, line: Opened | Round) -> None:
        self.events.write(EVENT, line=msgspec.to_builtins(line))


def _seconds(value: float) -> float:
    return round(value, 6)
