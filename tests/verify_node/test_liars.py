"""Lies that are not refused on sight: what follows for the liar, and that others lose no more than is stated.

`docs/LIES.md` has the table of what each lie can cost the others.
"""

from msgspec.structs import replace

from goodspeed.messages import Refusal, Verdict
from tests.fakes import Desk, alone, make_open, request_of, session_id
from verify_node.planner import Round

# -- found by the test of what was drawn -------------------------------------------------------------------------------


class Evident(Desk):
    """Drafts of client a that are verified by ratio are evidence against it."""

    def __init__(self, against: float, **options: object) -> None:
        super().__init__(**options)
        self.against = against
        self.rounds: list[Round] = []
        run = self.target.run

        def telling(planned: Round):
            self.rounds.append(planned)
            rules = {entry.session_id: entry.verification for entry in planned.entries if entry.num_drafted}
            return [
                replace(outcome, evidence=(self.against if self.is_of_a(outcome.session_id) else -0.1,))
                if rules.get(outcome.session_id) == "ratio"
                else outcome
                for outcome in run(planned)
            ]

        self.target.run = telling

    def is_of_a(self, key: bytes) -> bool:
        return self.core.sessions[key].client.name == "a"

    def rules(self) -> dict[int, str]:
        """By which each session of the last round was verified."""
        return {int.from_bytes(entry.session_id, "big"): entry.verification for entry in self.rounds[-1].entries}


def draft_all(desk: Desk, **changes: object) -> None:
    for session in list(desk.core.sessions.values()):
        if session.awaits_draft:
            number = int.from_bytes(session.session_id, "big")
            desk.draft(session.client.name, number, proposal=b"what was claimed", **changes)


def test_a_liar_goes_on_under_match_and_nobody_else_does():
    desk = Evident(against=8.0)
    for name in "ab":
        desk.hello(name)
    for number, name in ((1, "a"), (2, "a"), (3, "b")):
        desk.open(name, number, verification="ratio", max_tokens=100)
    desk.open("a", 4, max_tokens=100)
    desk.round()
    assert desk.rules() == {1: "ratio", 2: "ratio", 3: "ratio", 4: "match"}
    told = []
    for _ in range(4):
        draft_all(desk)
        told += [answer for answer in desk.round() if isinstance(answer, Refusal)]
    [refused] = told  # once, and about one draft
    assert refused.code == "proposal"
    assert refused.session_id in (session_id(1), session_id(2))
    assert refused.round is not None
    assert refused.what_to_do
    draft_all(desk)
    verdicts = [answer for answer in desk.round() if isinstance(answer, Verdict)]
    assert desk.rules() == {1: "match", 2: "match", 3: "ratio", 4: "match"}
    assert any(verdict.num_verified for verdict in verdicts if verdict.session_id == session_id(1))  # it still drafts
    proposals = {entry.session_id: entry.proposal for entry in desk.rounds[-1].entries}
    assert proposals[session_id(1)] is None  # not read any more
    assert proposals[session_id(3)] is not None
    for number in range(1, 5):
        text = desk.text(number)
        assert text == alone(request_of(make_open(number, max_tokens=100)))[: len(text)]


def test_new_sessions_and_connections_change_nothing_about_it():
    desk = Evident(against=8.0)
    desk.hello("a")
    desk.open("a", 1, verification="ratio")
    for _ in range(5):
        desk.round()
        draft_all(desk)
    assert desk.session(1).client.suspicion.proven
    desk.hello("a", boot_id=b"another!")  # its sessions are gone with its process
    assert not desk.core.sessions
    desk.open("a", 2, verification="ratio")
    desk.round()
    assert desk.rules() == {2: "match"}


def test_evidence_is_kept_over_short_sessions():
    """Each session shows too little; all of them together are enough."""
    desk = Evident(against=3.0)
    desk.hello("a")
    for number in range(1, 13):
        desk.open("a", number, verification="ratio", max_tokens=3)
        for _ in range(4):
            desk.round()
            draft_all(desk)
        assert desk.session(number).finished
    assert desk.core.scheduler.client("a").suspicion.proven
