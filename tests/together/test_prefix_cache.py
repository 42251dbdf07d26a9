"""Texts with a prefix cache at both nodes, of real microscopic models: as without them, and as of the target alone."""

from collections.abc import Sequence

import pytest

from draft_node.core.actions import Action, Deliver, Propose, Request, Send
from draft_node.core.session import Session
from draft_node.model.drafter import Drafter
from goodspeed.app import generation
from goodspeed.wire.messages import DownMessage, Sampling, Verdict
from tests.fakes import make_core, make_hello, session_id
from tests.micro import VOCAB, make_checkpoint, make_runner
from verify_node.model.target import Target

TARGET, DRAFT = make_checkpoint(1), make_checkpoint(1, shift=0.02)
PROMPT = tuple((7 * i * i) % VOCAB for i in range(30))


class Nodes:
    """A draft node and a verify node, and a line that loses nothing."""

    def __init__(self, *, keeps: bool = True, num_pages: int = 256) -> None:
        self.target = Target(TARGET, make_runner(TARGET, num_pages, prefix_cache=keeps))
        self.drafter = Drafter(DRAFT, make_runner(DRAFT, prefix_cache=keeps))
        self.core = make_core(
            pool=self.target.runner.pool,
            vocab_size=VOCAB,
            context_len=128,
            budget=12,
            max_round_tokens=40,
            prefix_cache=keeps,
        )
        self.sessions: dict[bytes, Session] = {}
        self.texts: dict[bytes, list[int]] = {}
        self.now = 0.0
        self.core.receive(b"a", make_hello("a"), self.now)

    def write(self, *requests: Request) -> list[tuple[int, ...]]:
        """The texts of several requests that come at once."""
        for request in requests:
            session = Session(request)
            self.sessions[request.session_id], self.texts[request.session_id] = session, []
            self._act(session, session.connect(self.now))
        for _ in range(1000):
            if all(self.sessions[request.session_id].done for request in requests):
                return [tuple(self.texts[request.session_id]) for request in requests]
            self._step()
        raise AssertionError("it never ends")

    def _step(self) -> None:
        self.now += 0.01
        if planned := self.core.plan(self.now):
            outcomes = self.target.run(planned).outcomes
            self._deliver([send.message for send in self.core.finish(outcomes, 0.01, self.now)])
        for proposed in self.drafter.step() if self.drafter.busy else ():
            session = self.sessions[proposed.session_id]
            self._act(session, session.proposed(proposed))
        for session in self.sessions.values():
            self._act(session, session.tick(self.now))

    def _deliver(self, messages: Sequence[DownMessage]) -> None:
        for message in messages:
            assert isinstance(message, Verdict)
            session = self.sessions[message.session_id]
            self._act(session, session.receive(message, self.now))
            if session.done:
                self.drafter.forget(message.session_id)

    def _act(self, session: Session, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, Send):
                self._deliver([send.message for send in self.core.receive(b"a", action.message, self.now)])
            elif isinstance(action, Propose):
                self.drafter.add(action)
            elif isinstance(action, Deliver):
                self.texts[session.request.session_id] += action.tokens

    @property
    def num_cached(self) -> list[int]:
        return [session.statistics.num_cached for session in self.sessions.values()]


def request(number: int, sampling: Sampling, prompt: Sequence[int] = PROMPT, salt: bytes = b"alice") -> Request:
    return Request(session_id(number), tuple(prompt), sampling, 25, cache_salt=salt)


def alone(prompt: Sequence[int], sampling: Sampling) -> tuple[int, ...]:
    return tuple(generation.generate(TARGET, make_runner(TARGET), tuple(prompt), sampling, 25))


SAMPLINGS = [Sampling(temperature=0.0), Sampling(temperature=0.8, top_k=9, top_p=0.9, seed=4), Sampling(seed=3)]


@pytest.mark.thorough
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_two_turns_of_a_chat_are_the_targets_own_with_it_and_without(sampling: Sampling) -> None:
    first = alone(PROMPT, sampling)
    turn = (*PROMPT, *first, 3, 4, 5)
    second = alone(turn, sampling)
    for keeps in (True, False):
        nodes = Nodes(keeps=keeps)
        assert nodes.write(request(1, sampling)) == [first]
        assert nodes.write(request(2, sampling, turn)) == [second]
        assert nodes.num_cached == ([0, 52] if keeps else [0, 0])
        assert (nodes.drafter.caches.num_found > 0) == keeps


def test_choices_of_one_prompt_read_it_once() -> None:
    samplings = [Sampling(seed=number) for number in range(8)]
    nodes = Nodes()
    texts = nodes.write(*(request(number, sampling) for number, sampling in enumerate(samplings, 1)))
    assert texts == [alone(PROMPT, sampling) for sampling in samplings]
    assert sorted(nodes.num_cached) == [0, *[28] * 7]


def test_another_user_finds_nothing_and_gets_the_same_text() -> None:
    nodes = Nodes()
    texts = [nodes.write(request(number, SAMPLINGS[0], salt=salt)) for number, salt in [(1, b"alice"), (2, b"bob")]]
    assert texts[0] == texts[1]
    assert nodes.num_cached == [0, 0]
    assert nodes.core.counts.num_found == nodes.drafter.caches.num_found == 0


def test_texts_are_exact_where_memory_is_short() -> None:
    """Sixteen texts, and room for three: they lose their memory, and pages of theirs are found and evicted."""
    nodes = Nodes(num_pages=45)
    prompts = [PROMPT[: 6 + 3 * (number % 9)] for number in range(16)]
    requests = [request(number, Sampling(seed=number), prompt) for number, prompt in enumerate(prompts)]
    texts = nodes.write(*requests)
    assert texts == [alone(prompt, Sampling(seed=number)) for number, prompt in enumerate(prompts)]
    assert nodes.core.counts.num_preempted > 0
    assert nodes.core.counts.num_found > 0
