"""A verify node stepped by hand: messages of honest and dishonest draft nodes, and rounds with a fake target.

The models are those of the simulation (`experiments/simulation`). No sockets, no asyncio, no torch.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from draft_node.core.generation import Generation
from experiments.simulation.nodes.invariants import CheckedCore
from experiments.simulation.texts.acceptance import Independent
from experiments.simulation.texts.draft_model import DraftModel, likeliest_leaf
from experiments.simulation.texts.target import Target
from experiments.simulation.texts.text import STOP as STOP
from experiments.simulation.texts.text import VOCAB as VOCAB
from experiments.simulation.texts.text import alone as alone
from experiments.simulation.texts.text import draw, feed_all, start
from goodspeed.constraint.compiling import Constraints
from goodspeed.drafting.proposing import Propose
from goodspeed.drafting.sources import Source
from goodspeed.drafting.tree import Tree
from goodspeed.engine.paged.pages import PagePool
from goodspeed.exact.proposal_bytes import certain
from goodspeed.fair.policies import Policy
from goodspeed.fair.refined import Refined
from goodspeed.fair.round_time import CostModel
from goodspeed.wire.fields import MAX_CONTEXT, MAX_DRAFT, Verification
from goodspeed.wire.handshake import VERSION, Hello, Welcome
from goodspeed.wire.messages import Ack, DownMessage, Draft, OpenSession, Sampling, TokenLogprobs, UpMessage
from verify_node.core.core import VerifyCore
from verify_node.core.replies import Send
from verify_node.core.settings import CoreSettings
from verify_node.scheduler.round import Entry, Outcome, PromptRows, Round
from verify_node.session.draft_tokens import DraftTokens

Replaced = TypeVar("Replaced", bound=Struct)

MAX_BYTES = 1 << 20


def propose(wanted: Propose, alpha: float) -> tuple[int, ...]:
    """Returns a draft that agrees with the fake target at each position with probability alpha, reproducibly."""
    return proposal(DraftModel({wanted.request.session_id: Independent(alpha)}), wanted)


def likeliest_path(wanted: Propose) -> tuple[int, ...]:
    """Returns the tokens on the path to the leaf that the proposal extends first."""
    tree = Tree.of(wanted.tree)
    return tuple([tree.tokens[node] for node in tree.path(likeliest_leaf(tree, wanted))])


def next_token(seed: int, tokens: Iterable[int]) -> int:
    """Returns the fake target's continuation after these tokens."""
    return draw(feed_all(start(seed), tokens))[0]


def proposal(model: DraftModel, wanted: Propose) -> tuple[int, ...]:
    """Returns the tokens that the model drafts behind the likeliest leaf."""
    return tuple(one.token for one in model.propose(wanted, likeliest_path(wanted)))


# -- one verify node, by hand ------------------------------------------------------------------------------------------


FAKE = CoreSettings(  # settings of the fake verify node; the others are the daemon's
    budget=8, max_round_tokens=64, max_sessions=100, max_client_sessions=100, lease_s=6.0, is_shared=False
)


def make_core(
    *,
    policy: str | Policy = "gradient",
    num_pages: int = 64,
    page_size: int = 4,
    prefix_cache: bool = True,
    pool: PagePool | None = None,
    context_len: int = 200,
    vocab_size: int = VOCAB,
    boot_id: bytes = b"verify-0",
    cost: CostModel | None = None,
    constraints: Constraints | None = None,
    validates: bool = True,
    **settings: Any,
) -> VerifyCore:
    """Creates a verify node's state machine around the fake target; by default every event validates it.

    policy: a name, or one in place of the settings' own. settings: what `CoreSettings` has, in place of FAKE's.
    """
    name, own = (policy, None) if isinstance(policy, str) else ("gradient", policy)
    changed = dataclasses.replace(FAKE, policy=name, **settings)
    welcome = changed.welcome(
        boot_id=boot_id, tokenizer="fake", vocab_size=vocab_size, context_len=context_len, max_message_bytes=MAX_BYTES
    )
    kind = CheckedCore if validates else VerifyCore
    pool = pool or PagePool(num_pages, page_size, prefix_cache=prefix_cache)
    refined = cost if cost is None or isinstance(cost, Refined) else Refined(cost)
    return kind(changed, welcome, pool, policy=own, cost=refined, constraints=constraints)


def make_hello(name: str = "a", **changes: Any) -> Hello:
    return replace_message(Hello(VERSION, name, name.encode()[-8:].rjust(8), "fake", "fake-draft"), **changes)


def make_welcome(**terms: Any) -> Welcome:
    """Returns the Welcome of a verify node that serves any text; terms: what differs."""
    welcome = Welcome(VERSION, b"verify-1", "fake", VOCAB, MAX_CONTEXT, MAX_BYTES, heartbeat_s=1.0, lease_s=6.0)
    return replace(welcome, **{"constraints": True, "promises": True, **terms})


def make_open(number: int = 1, *, epoch: int = 1, prompt: Sequence[int] = (1, 2, 3), **changes: Any) -> OpenSession:
    opened = OpenSession(session_id(number), epoch, tuple(prompt), (), Sampling(seed=number), max_tokens=20)
    return replace_message(opened, **changes)


def make_entry(
    number: int,
    start: int,
    tokens: Sequence[int],
    num_drafted: int = 0,
    *,
    samples: bool = True,
    verification: Verification = "match",
    text: Sequence[int] = (),
    prompt_rows: PromptRows | None = None,
    proposal: bytes | None = None,
    parents: Sequence[int] | None = None,
    source: Source = "model",
    **opened: Any,
) -> Entry:
    """An entry of a round, whose last tokens are drafted. opened: of `make_open`."""
    asked = make_open(number, verification=verification, **opened)
    tree = None if parents is None else tuple(parents)
    drafted = DraftTokens(tuple(tokens[len(tokens) - num_drafted :]), b"", source, proposal, tree)
    return Entry(asked, start, tuple(tokens), drafted, samples, verification, text, prompt_rows=prompt_rows)


def expected(number: int = 1, **changes: Any) -> tuple[int, ...]:
    """Returns what the fake target alone writes for `make_open` with these arguments."""
    return alone(request_of(make_open(number, **changes)))


def session_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


def replace_message(message: Replaced, **changes: Any) -> Replaced:
    fields = {name: getattr(message, name) for name in message.__struct_fields__}
    return type(message)(**(fields | changes))


class Desk:
    """A verify node with the fake target; peers are names, and tests set the clock."""

    def __init__(self, *names: str, core: VerifyCore | None = None, draft_model: str = "fake-draft", **options: Any):
        """names: draft nodes that have said Hello, with this draft model. options: of `make_core`."""
        self.core = core or make_core(**options)
        self.target = TellingTarget(self.core.pool, self.core.limits, self.core.welcome.context_len)
        self.now = 0.0
        self.compiles = True  # constraints are compiled at once
        for name in names:
            self.hello(name, draft_model=draft_model)

    def hello(self, name: str = "a", **changes: Any) -> DownMessage:
        return self.up(name, make_hello(name, **changes))[0]

    def up(self, peer: str, message: UpMessage) -> list[DownMessage]:
        """Delivers a peer's message; returns the answers, which all go to that peer."""
        sends = self.core.receive(peer.encode(), message, self.now)
        if isinstance(message, OpenSession):
            sends += self.compile() if self.compiles else []
            sends += self.core.admit(self.now)
        assert {send.peer_id for send in sends} <= {peer.encode()}
        return [send.message for send in sends]

    def compile(self) -> list[Send]:
        """Compiles all constraints that wait, in turn."""
        sends: list[Send] = []
        constraints: Any = self.core.sessions.constraints
        while (session := self.core.sessions.next_to_compile()) is not None:
            sends += self.core.compiled(session, constraints.compiled(session.opened.constraint), self.now)
        return sends

    def open(self, peer: str = "a", number: int = 1, **changes: Any) -> list[DownMessage]:
        return self.up(peer, make_open(number, **changes))

    def begin(self, peer: str = "a", number: int = 1, **changes: Any) -> list[DownMessage]:
        """Opens a session, and runs a round, which is its first one if it needs not wait."""
        return self.open(peer, number, **changes) + self.round()

    def draft(
        self,
        peer: str = "a",
        number: int = 1,
        *,
        alpha: float = 1.0,
        tokens: Sequence[int] | None = None,
        **changes: Any,
    ) -> list[DownMessage]:
        """Sends the draft of an honest node, or of one that drafted `tokens`, with `changes`; returns the answers."""
        return self.up(peer, replace_message(self.honest_draft(number, alpha, tokens), **changes))

    def honest_draft(self, number: int = 1, alpha: float = 1.0, tokens: Sequence[int] | None = None) -> Draft:
        """All that the session may draft, or these tokens, complete; under ratio each token is certain."""
        session = self.session(number)
        wanted = Propose(request_of(session.opened), session.epoch, 0, tuple(session.tokens), session.drafts.may_draft)
        tokens = propose(wanted, alpha)[:MAX_DRAFT] if tokens is None else tuple(tokens)
        by_ratio = session.opened.verification == "ratio"
        probabilities, proposal = (b"", certain(tokens)) if by_ratio else (bytes(len(tokens)), None)
        begun = (session.session_id, session.epoch, len(session.tokens), tokens, probabilities)
        return Draft(*begun, complete=True, proposal=proposal)

    def acknowledge(self, *numbers: int) -> None:
        """Has the draft nodes of these sessions, or of all that go on, tell that they have the whole text."""
        going_on = [session for session in self.core.sessions.values() if not session.finished]
        for session in map(self.session, numbers) if numbers else going_on:
            self.up(session.peer_id.decode(), Ack(session.session_id, session.epoch, len(session.tokens)))

    def plan(self) -> Round:
        """Begins a round, which there has to be."""
        planned = self.core.plan(self.now)
        assert planned is not None
        return planned

    def round(self, duration_s: float = 0.01) -> list[DownMessage]:
        """Runs one round from plan to verdicts; returns an empty list when there is none to run."""
        planned = self.core.plan(self.now)
        if planned is None:
            return []
        return self.finish(planned, duration_s)

    def finish(self, planned: Round, duration_s: float = 0.01, work_s: float = 0.0) -> list[DownMessage]:
        outcomes = self.target.run(planned)
        self.now += duration_s + work_s
        sends = self.core.rounds.finish(outcomes, duration_s, self.now, work_s=work_s) + self.core.admit(self.now)
        return [send.message for send in sends]

    def session(self, number: int = 1) -> Any:
        return self.core.sessions[session_id(number)]

    def text(self, number: int = 1) -> tuple[int, ...]:
        session = self.session(number)
        return tuple(session.tokens[len(session.opened.prompt) :])


def request_of(opened: OpenSession) -> Generation:
    begun = (opened.session_id, opened.prompt, opened.sampling, opened.max_tokens, opened.stop_ids)
    return Generation(*begun, opened.verification, opened.max_draft, opened.num_logprobs, opened.min_tokens)


def told(position: int, token: int) -> TokenLogprobs:
    """Returns the fake target's logprobs of a token at a position."""
    return TokenLogprobs(-float(position), (token,), (-1.0,))


class TellingTarget(Target):
    """The fake target with logprobs for the sessions that want them, of their prompts, too."""

    def run(self, planned: Round) -> list[Outcome]:
        done = {outcome.session_id: outcome for outcome in super().run(planned)}
        return [
            _with_logprobs(entry, done.get(entry.session_id) or Outcome(entry.session_id, (), 0, 0.0))
            for entry in planned.entries
            if entry.session_id in done or entry.prompt_rows is not None
        ]


def _with_logprobs(entry: Entry, outcome: Outcome) -> Outcome:
    if entry.opened.num_logprobs is not None:
        outcome = replace(outcome, logprobs=tuple(map(told, count(entry.base_len), outcome.tokens)))
    if entry.prompt_rows is not None:
        of_prompt = tuple(told(entry.start, token) for token in entry.prompt_rows.tokens)
        outcome = replace(outcome, prompt_logprobs=of_prompt)
    return outcome
