"""A draft node and a verify node with real microscopic models, and a line that loses, repeats and reorders messages.

No sockets; the clock is set by hand.
"""

import random
from collections import deque
from collections.abc import Iterator, Sequence

from draft_node.core.actions import Action, Deliver, Finish, Send
from draft_node.core.generation import Generation
from draft_node.core.session import Session
from goodspeed.drafting.drafter import Drafter
from goodspeed.drafting.proposing import Propose
from goodspeed.wire.codec import decode_down, decode_up, encode
from goodspeed.wire.messages import Refusal, TokenLogprobs, Verdict
from tests.fakes import make_core, make_hello, make_welcome
from tests.micro import VOCAB, make_checkpoint, make_engine
from tests.verify_node.model.desk import TARGET
from verify_node.model.target import Target

DRAFT = make_checkpoint(1, shift=0.02)
LIMIT = 1 << 20


class User:
    """A session, and what it was given."""

    def __init__(self, request: Generation) -> None:
        self.session = Session(request)
        self.tokens: list[int] = []
        self.logprobs: list[TokenLogprobs] = []
        self.prompts: list[tuple[TokenLogprobs, ...]] = []  # what it was told of its prompt, each time
        self.reason: str | None = None


class Line:
    """One draft node and one verify node, and a line between them on which every fault is drawn from a seed."""

    def __init__(self, seed: int = 0, *, num_pages: int = 256, faults: float = 0.15, prefix_cache: bool = False):
        self.random = random.Random(seed)
        self.faults = faults
        self.target = Target(TARGET, make_engine(TARGET, num_pages, prefix_cache=prefix_cache))
        self.drafter = Drafter(DRAFT, make_engine(DRAFT, prefix_cache=prefix_cache), kind="lattice", k=16)
        pool = self.target.engine.pool
        self.core = make_core(pool=pool, vocab_size=VOCAB, context_len=128, budget=12, max_round_tokens=32)
        self.users: dict[bytes, User] = {}
        self.up: deque[bytes] = deque()
        self.down: deque[bytes] = deque()
        self.now = 0.0
        self.num_preempted = self.num_reopened = self.num_repeated = 0

    def run(self, *requests: Generation) -> "Line":
        """Writes these texts, which are asked for at once, to their ends."""
        self.core.receive(b"a", make_hello("a"), self.now)
        for request in requests:
            user = self.users[request.session_id] = User(request)
            self._act(user, user.session.connect(self.now, make_welcome()))
        for _ in range(20_000):
            if all(user.session.done for user in self.users.values()):
                return self
            self._step()
        raise AssertionError("it never ends")

    def _step(self) -> None:
        self.now += 0.05
        for data in self._arriving(self.up):
            for send in self.core.receive(b"a", decode_up(data, LIMIT), self.now):
                self.num_repeated += bool(getattr(send.message, "logprobs", None))
                self.down.append(encode(send.message, LIMIT))
        if planned := self.core.plan(self.now):
            self.num_preempted += len(planned.preempted)
            outcomes = self.target.run(planned).outcomes
            self.down += [encode(s.message, LIMIT) for s in self.core.rounds.finish(outcomes, 0.01, self.now)]
        for told in (decode_down(data, LIMIT) for data in self._arriving(self.down)):
            assert isinstance(told, Verdict | Refusal)
            assert told.session_id is not None
            user = self.users[told.session_id]
            self._act(user, user.session.receive(told, self.now))
        for proposed in self.drafter.step() if self.drafter.busy else ():
            user = self.users[proposed.session_id]
            self._act(user, user.session.proposed(proposed))
        for user in self.users.values():
            self._act(user, user.session.tick(self.now))
            if self.random.random() < self.faults / 8 and not user.session.done:
                user.session.disconnect()
                self._act(user, user.session.connect(self.now, make_welcome()))
                self.num_reopened += bool(user.tokens)

    def _arriving(self, queue: deque[bytes]) -> Iterator[bytes]:
        """Yields the queue's messages that arrive now: some are lost, some come twice, some wait."""
        waiting = list(queue)
        queue.clear()
        for message in waiting:
            fate = self.random.random() / self.faults if self.faults else 1.0
            if fate < 0.4:
                continue
            if fate < 0.8:
                queue.append(message)
            if fate > 0.6:
                yield message

    def _act(self, user: User, actions: Sequence[Action]) -> None:
        for action in actions:
            match action:
                case Send():
                    self.up.append(encode(action.message, LIMIT))
                case Propose():
                    self.drafter.add(action)
                case Deliver():
                    user.tokens += action.tokens
                    user.logprobs += action.logprobs
                    user.prompts += [action.prompt_logprobs] if action.prompt_logprobs is not None else []
                case Finish():
                    user.reason = action.reason
                    self.drafter.forget(user.session.request.session_id)
