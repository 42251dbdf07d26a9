"""Sessions with drafts and offers put there by hand, and what a choice makes of them."""

from collections.abc import Sequence
from typing import Any

from goodspeed.fair.estimators import AcceptanceEstimator, GoodputEstimator
from goodspeed.fair.latency import Linear, Refined
from goodspeed.fair.latency.models import CostModel
from goodspeed.slo.objectives import Objectives
from goodspeed.wire import odds
from goodspeed.wire.messages import Draft, Offer, Slo, digest
from tests.fakes import make_open
from tests.verify_node.phases import put
from verify_node.packing.round import RoundLimits
from verify_node.rounds.choice import ByOdds
from verify_node.rounds.self_drafts import SelfDrafts
from verify_node.session.client import Client
from verify_node.session.session import Session
from verify_node.slo.ledger import Ledger

NOW = 100.0
"""When rounds are packed."""

FREE = Linear(fixed_s=0.01)
DEAR = Linear(fixed_s=0.01, token_s=0.01)


def make_client(name: str = "a", **changes: Any) -> Client:
    client = Client(name, AcceptanceEstimator(0.1, 0.7), GoodputEstimator(0.1, 1.0))
    for key, value in changes.items():
        setattr(client, key, value)
    return client


def make_session(number: int = 1, client: Client | None = None, *, prompt: Sequence[int] = (1, 2, 3), **changes: Any):
    """Session `number`, which advances by itself, of a client of its own unless another is given."""
    client = client or make_client(f"client-{number}")
    opened = make_open(number, prompt=tuple(prompt), **({"max_tokens": 100} | changes))
    acceptance = AcceptanceEstimator(0.1, client.acceptance.value)
    limit = len(prompt) + opened.max_tokens
    session = Session(opened, b"a", client, acceptance, list(prompt), number, len(prompt), limit)
    put(session, 0)
    return session


def drafting(
    number: int,
    claimed: Sequence[float] | None,
    *,
    num_tokens: int = 4,
    num_ngram: int = 0,
    proposal: bytes | None = None,
    **changes: Any,
):
    """A session whose draft has arrived; claimed: odds of its tokens, None: it says none."""
    session = make_session(number, **changes)
    num_tokens = num_tokens if claimed is None else len(claimed)
    codes = None if claimed is None else odds.encode(claimed)
    tokens = tuple(range(1, num_tokens + 1))
    text = session.tokens
    draft = Draft(session.session_id, 1, 0, len(text), digest(text), tokens, proposal, odds=codes, num_ngram=num_ngram)
    put(session, num_tokens, draft)
    return session


def offering(number: int, claimed: Sequence[float], *, tokens: Sequence[int] | None = None, **changes: Any):
    """A session that advances by itself, with an offer on its text as it is."""
    session = make_session(number, **changes)
    tokens = tuple(tokens) if tokens is not None else tuple(range(1, len(claimed) + 1))
    session.take_offer(Offer(session.session_id, 1, len(session.tokens), tokens, odds.encode(claimed)), NOW)
    return session


def grow(session: Session, *tokens: int) -> None:
    """A round commits tokens to a session that advances by itself."""
    session.commit(tokens)
    if not session.finished:
        put(session, 0)


def make_choice(
    *,
    budget: int = 8,
    max_round_tokens: int = 64,
    cost: CostModel = FREE,
    worth: Any = None,
    self_drafts: SelfDrafts | None = None,
    keeps_slos: bool = False,
) -> ByOdds:
    limits = RoundLimits(budget, max_round_tokens)
    return ByOdds(Refined(cost), limits, worth or (lambda client: client.weight), self_drafts, keeps_slos=keeps_slos)


def owe(session: Session, tokens: float, tpot_s: float = 0.1) -> Session:
    """Gives a session objectives by which a round that takes no time owes it so many tokens."""
    slo = Objectives(tpot_s=tpot_s)
    session.ledger = Ledger.open(Slo(slo), slo, 0, 0.0, NOW)
    session.ledger.decided(1, NOW - tokens * tpot_s)
    return session


def lengths(choice: ByOdds, *sessions: Session) -> list[int]:
    """How many drafted tokens of each session are verified."""
    chosen = choice.choose(sessions, NOW)
    return [len(chosen[one.session_id].tokens) if one.session_id in chosen else 0 for one in sessions]
