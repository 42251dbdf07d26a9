"""The verify node's core keeps its laws whatever honest and dishonest draft nodes say, in any order and round.

Two clients with a few sessions each; a message may be honest, changed in any field, another's, or one said before.
"""

from collections.abc import Sequence
from itertools import count
from types import SimpleNamespace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from experiments.simulation.checking.worlds import Phases
from goodspeed.constraint.compiling import Compiled, Constraints
from goodspeed.constraint.matcher import Matcher
from goodspeed.errors import ConstraintError
from goodspeed.exact.proposal_bytes import certain
from goodspeed.wire.generation import Constraint
from goodspeed.wire.handshake import Heartbeat
from goodspeed.wire.messages import Ack, Close, DownMessage, Draft, Refusal, UpMessage, Verdict
from tests.constraint.babbler import VOCABULARY
from tests.fakes import VOCAB, Desk, make_hello, make_open, next_token, session_id, told
from verify_node.core.replies import Send
from verify_node.scheduler.round import Outcome, Round
from verify_node.session.session import Session

PEERS = ("a", "b")
OWNERS = {1: "a", 2: "a", 3: "a", 4: "b", 5: "b"}
BY_RATIO = {3, 5}
MAX_TOKENS = 12
MANY = 400  # rounds within which everything is over once all are honest

numbers = st.sampled_from(sorted(OWNERS))
peers = st.sampled_from(PEERS)
alphas = st.sampled_from([0.0, 0.7, 1.0])
lengths = st.integers(1, 14)
tokens = st.lists(st.integers(0, VOCAB + 1), max_size=8).map(tuple)
rounds, shapes = st.sampled_from(["barrier", "continuous"]), st.sampled_from(["chain", "tree", "drawn"])
kinds = st.tuples(st.booleans(), st.sampled_from(["model", "ngram"]), st.booleans(), shapes)
policies = st.sampled_from(["gradient", "fixed"]) | st.builds(Phases, st.just(1))
SIZES = {"budget": [1, 3, 8], "num_pages": [10, 14, 64], "max_sessions": [4, 100]}
options = st.fixed_dictionaries({name: st.sampled_from(values) for name, values in SIZES.items()})
places = st.tuples(st.integers(-1, 1), st.integers(-3, 2))


FORMS = (None, Constraint("regex", "a"), Constraint("regex", "b"), Constraint("regex", "wrong"))
END = 0  # of every text with a form


class Forms(Constraints):
    """Compiles nothing, since the target reads no forms; one is wrong."""

    table: Any = SimpleNamespace(eos_ids=frozenset({END}))

    def compiled(self, constraint: Constraint) -> Compiled:
        return ConstraintError("wrong") if constraint == FORMS[-1] else Matcher(self.table, constraint)


class CoreLaws(RuleBasedStateMachine):
    """Beside the core there is only what was said, and the round that the target computes."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[tuple[str, UpMessage]] = []
        self.in_flight: Round | None = None
        self.asked: Session | None = None  # whose form is compiled

    @initialize(options=options, rounds=rounds, policy=policies, prompts=st.lists(lengths, min_size=4, max_size=4))
    def begin(self, options: dict[str, Any], rounds: str, policy: Any, prompts: list[int]) -> None:
        own: Any = {"max_round_tokens": 20, "page_size": 4, "context_len": 40, "constraints": Forms(VOCABULARY)}
        self.desk = Desk(rounds=rounds, policy=policy, **own, **options)
        self.desk.compiles = False
        for peer in PEERS:
            self._say(peer, make_hello(peer))
        for number, length in enumerate(prompts, start=1):
            self.open(number, length, stops=False, logprobs=number % 2 == 0, form=None)

    # -- what draft nodes say --------------------------------------------------------------------------------------

    def _say(self, peer: str, message: UpMessage) -> list[DownMessage]:
        self.said.append((peer, message))
        answers = self.desk.up(peer, message)  # which asserts that nobody else is answered
        self._look_at(answers)
        return answers

    @rule(peer=peers, restarted=st.booleans())
    def hello(self, peer: str, restarted: bool) -> None:
        self._say(peer, make_hello(peer, boot_id=b"another-" if restarted else peer.encode().rjust(8)))

    @rule(number=numbers, length=lengths, stops=st.booleans(), logprobs=st.booleans(), form=st.sampled_from(FORMS))
    def open(self, number: int, length: int, stops: bool, logprobs: bool, form: Constraint | None) -> None:
        ends: Any = {"stop_ids": (END,) * (stops or form is not None), "num_logprobs": 1 if logprobs else None}
        kind: Any = {"constraint": form, "verification": "ratio" if number in BY_RATIO else "match"}
        self._say(OWNERS[number], make_open(number, prompt=(1,) * length, max_tokens=MAX_TOKENS, **ends, **kind))

    @rule(number=numbers, form=st.sampled_from(FORMS))
    def exchange_the_form(self, number: int, form: Constraint | None) -> None:
        if session := self.desk.core.sessions.get(session_id(number)):
            opened = replace(session.opened, epoch=session.epoch + 1, constraint=form, stop_ids=(END,))
            self._say(OWNERS[number], opened)

    @rule()
    def compile_one(self) -> None:
        """The first of two calls begins to compile a constraint, the second ends it."""
        if self.asked is None:
            self.asked = self.desk.core.sessions.next_to_compile()
        elif (constraint := self.asked.opened.constraint) is not None:
            asked, self.asked = self.asked, None
            result = Forms(VOCABULARY).compiled(constraint)
            self._look_at([send.message for send in self.desk.core.compiled(asked, result, self.desk.now)])

    @rule(number=numbers, kept=st.floats(0, 1))
    def open_again(self, number: int, kept: float) -> None:
        """Opens a session again as a draft node does that has applied some of it."""
        if session := self.desk.core.sessions.get(session_id(number)):
            opened = session.opened
            committed = tuple(session.tokens[len(opened.prompt) :])
            committed = committed[: int(kept * len(committed))][: opened.max_tokens - 1]
            self._say(OWNERS[number], replace(opened, epoch=session.epoch + 1, committed=committed))

    @rule(number=numbers, peer=peers, epoch=st.integers(0, 3), prompt=tokens, committed=tokens)
    def open_anything(self, number, peer, epoch, prompt, committed):
        self._say(peer, make_open(number, epoch=epoch, prompt=prompt, committed=committed, max_tokens=MAX_TOKENS))

    @rule(number=numbers, alpha=alphas, complete=st.booleans())
    def draft(self, number: int, alpha: float, complete: bool = True) -> None:
        session = self.desk.core.sessions.get(session_id(number))
        if session is not None and not session.finished:
            honest = self.desk.honest_draft(number, alpha)
            self._say(self._owner(number), replace(honest, complete=complete))

    @rule(alpha=alphas)
    def all_draft(self, alpha: float) -> None:
        for number in OWNERS:
            self.draft(number, alpha)

    @rule(number=numbers, peer=peers, place=places, drafted=tokens, kind=kinds)
    def draft_anything(self, number, peer, place, drafted, kind):
        (epoch, base), (right, source, complete, shape) = place, kind
        session = self.desk.core.sessions.get(session_id(number))
        if session is None:
            return
        base_len = max(0, len(session.tokens) + base)
        if right:  # as far as the text is there
            drafted = (*session.tokens[base_len:], *drafted)
        parents = bytes(each // 2 for each in range(len(drafted))) if shape == "tree" else None
        drawn_from = certain([token % VOCAB for token in drafted]) if shape == "drawn" and drafted else None
        where = session.session_id, max(0, session.epoch + epoch), base_len
        draft = Draft(*where, drafted, bytes(len(drafted)), source, parents, complete, drawn_from)
        before = session.drafts.newest, session.acked
        answers = self._say(peer, draft)
        if peer != self._owner(number):
            assert {answer.code for answer in answers if isinstance(answer, Refusal)} <= {"not_owner", "hello_first"}
            assert answers
        if answers:
            assert (session.drafts.newest, session.acked) == before

    @rule(number=numbers, peer=peers, base_len=st.integers(0, 30), epoch=st.integers(0, 2))
    def acknowledge(self, number: int, peer: str, base_len: int, epoch: int) -> None:
        self._say(peer, Ack(session_id(number), epoch, base_len))

    @rule(number=numbers)
    def acknowledge_all(self, number: int) -> None:
        if session := self.desk.core.sessions.get(session_id(number)):
            self._say(self._owner(number), Ack(session.session_id, session.epoch, len(session.tokens)))

    @rule(number=numbers, peer=peers, epoch=st.integers(0, 3))
    def close(self, number: int, peer: str, epoch: int) -> None:
        session = self.desk.core.sessions.get(session_id(number))
        self._say(peer, Close(session_id(number), epoch))
        if session is not None and session.client.name != peer:
            assert self.desk.core.sessions[session_id(number)] is session

    @rule(back=st.integers(1, 12))
    def say_again(self, back: int) -> None:
        self._say(*self.said[-min(back, len(self.said))])

    @rule(seconds=st.sampled_from([0.01, 0.5, 4.0]), beats=st.booleans())
    def tick(self, seconds: float, beats: bool) -> None:
        self.desk.now += seconds
        for peer in PEERS if beats else ():
            self._say(peer, Heartbeat(peer.encode().rjust(8)))
        self.desk.core.tick(self.desk.now)

    # -- rounds ----------------------------------------------------------------------------------------------------

    @rule(alpha=st.sampled_from([0.3, 1.0]), number=st.integers(1, 5))
    def some_rounds(self, alpha: float, number: int) -> None:
        """All are honest for a while."""
        for _ in range(number):
            if self.in_flight is None:
                self.all_draft(alpha)
                self.plan()
            if self.in_flight is not None:
                self.finish(None)

    @precondition(lambda self: self.in_flight is None)
    @rule()
    def plan(self) -> None:
        self.in_flight = self.desk.core.plan(self.desk.now)

    @rule(number=numbers, kept=st.sampled_from([0.0, 0.5]))
    def open_again_in_a_round(self, number: int, kept: float) -> None:
        self.some_rounds(1.0, 2)
        if self.in_flight is None:
            self.all_draft(1.0)
            self.plan()
        self.open_again(number, kept)

    @precondition(lambda self: self.in_flight is not None)
    @rule(failed=st.sampled_from([None, None, None, None, None, 1]))
    def finish(self, failed: int | None) -> None:
        outcomes = self._run()
        if failed is not None and failed < len(outcomes):
            outcomes[failed] = replace(outcomes[failed], tokens=(), num_accepted=0, failed="it fails")
        self.desk.now += 0.01
        self._take(self.desk.core.rounds.finish(outcomes, 0.01, self.desk.now))

    @precondition(lambda self: self.in_flight is not None)
    @rule()
    def abort(self) -> None:
        self._run()
        self._take(self.desk.core.rounds.abort("it fails", self.desk.now))

    def _run(self) -> list[Outcome]:
        """Runs the round only now: the target would raise if its memory was changed while the round was in flight."""
        assert self.in_flight is not None
        planned, self.in_flight = self.in_flight, None
        return self.desk.target.run(planned)

    # -- what must hold --------------------------------------------------------------------------------------------

    def _owner(self, number: int) -> str:
        return str(self.desk.session(number).client.name)

    def _take(self, sends: Sequence[Send]) -> None:
        for send in sends:
            message = send.message
            session = self.desk.core.sessions.get(message.session_id or b"")
            assert session is None or send.peer_id == session.peer_id
        self._look_at([send.message for send in sends])

    def _look_at(self, answers: Sequence[DownMessage]) -> None:
        """A verdict tells the text as it is, from where it says."""
        for answer in answers:
            if isinstance(answer, Verdict):
                session = self.desk.core.sessions[answer.session_id]
                assert answer.epoch == session.epoch
                assert list(answer.tokens) == session.tokens[answer.base_len :]
                if session.opened.num_logprobs is None:
                    assert answer.logprobs is None
                else:
                    assert answer.logprobs == tuple(map(told, count(answer.base_len), answer.tokens))
                assert answer.finish_reason == session.finish_reason
                assert answer.may_draft <= (0 if session.finished else session.max_length)

    @invariant()
    def every_text_is_what_the_target_says(self) -> None:
        for session in self.desk.core.sessions.values():
            given = len(session.opened.prompt) + len(session.opened.committed)
            seed = session.opened.sampling.seed
            for at in range(given, len(session.tokens)):
                assert session.tokens[at] == next_token(seed, session.tokens[:at])
            assert len(session.tokens) <= session.limit

    @invariant()
    def what_is_kept_of_a_text_fits_it(self) -> None:
        for session in self.desk.core.sessions.values():
            assert session.acked <= len(session.tokens)
            wanted = session.opened.num_logprobs is not None
            assert len(session.logprobs) == (len(session.tokens) - session.acked) * wanted
            assert session.drafts.newest is None or session.drafts.newest.made_on <= len(session.tokens)

    @precondition(lambda self: self.in_flight is None)
    @invariant()
    def what_is_cached_is_in_the_pool(self) -> None:
        core = self.desk.core
        core.sessions.free_released()
        num_owned = sum(len(core.pool.table(key)) for key in core.sessions if key in core.pool)
        assert core.pool.num_free == core.pool.num_pages - num_owned  # and nobody else owns any
        assert all(core.pool.length(key) < len(session.tokens) for key, session in core.sessions.items())

    def teardown(self) -> None:
        """Makes all honest from now on: every text comes to its end; and when nobody is left, nothing is."""
        if not hasattr(self, "desk"):
            return
        if self.in_flight is not None:
            self.finish(None)
        for peer in PEERS:
            self.desk.hello(peer)
        for _ in range(MANY):
            if all(session.finished for session in self.desk.core.sessions.values()):
                break
            self.desk.compile()
            for number in OWNERS:
                self.acknowledge_all(number)
            self.some_rounds(0.7, 1)
        self.some_rounds(0.7, 3)
        assert all(session.finished for session in self.desk.core.sessions.values())
        self.desk.now += 100.0
        self.desk.core.tick(self.desk.now)
        self.desk.core.plan(self.desk.now)
        assert not self.desk.core.sessions
        assert self.desk.core.pool.num_free == self.desk.core.pool.num_pages


TestCoreLaws = CoreLaws.TestCase
TestCoreLaws.settings = settings(max_examples=100, stateful_step_count=50, derandomize=True, database=None)
