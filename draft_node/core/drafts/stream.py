"""A session's one stream of drafts: what goes up after each verdict, and what the draft model is asked meanwhile.

The n-gram index is asked at each verdict, and its tokens go up in place of the Ack. The draft model drafts a chain
beyond the text, as long as the verify node permits it and its tokens come in time. Of both, what is expected to bring
more tokens goes up. The verify node keeps the newest draft, and follows it as the text grows.

Under the ratio rule a draft is made once per text, with noise of its own. Its length follows from what is permitted and
never from its own tokens, so that which tokens are verified tells nothing about the noise that decides on them. No I/O.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from draft_node.core.actions import Action, Propose, Proposed, Request, Send
from draft_node.core.drafts.asking import Asking
from draft_node.core.drafts.chain import Chain
from draft_node.core.drafts.ngrams import NgramDrafter
from draft_node.core.drafts.resting import Resting
from draft_node.core.drafts.tree import Tree
from goodspeed.exact import trees
from goodspeed.exact.positions import certain
from goodspeed.ngram.drafting import Continuation
from goodspeed.wire import probabilities
from goodspeed.wire.fields import NodeSource
from goodspeed.wire.messages import Ack, Draft, Verdict

NGRAM_LENGTH = 32
"""n-gram tokens of a draft at most: the text may have grown by some when it arrives."""

MAX_SILENT = 128
"""Tokens of a text for which a draft model may be silent before that counts against it."""

ENOUGH = NGRAM_LENGTH // 2
"""A draft of which so many tokens are left says enough: a new one at each verdict would mostly repeat it."""

LEAST_EXPECTED = 1.0
"""Under the ratio rule n-gram tokens go up in place of the model's where so many at least are expected to be accepted,
since they take no time."""


@dataclass(slots=True)
class Stream:
    """The drafts of one session, and the questions to its draft model that they call for."""

    asking: Asking
    ngrams: NgramDrafter | None = None
    chain: Chain | None = None  # None where no draft model drafts
    resting: Resting = field(default_factory=Resting)  # of the draft model, which may serve other sessions too
    permitted: int = 0  # tokens beyond the text that the draft model may draft
    newest: Draft | None = None  # of those sent
    _newest: Continuation = field(default_factory=Continuation)  # its tokens, without those of a tree's other branches
    _has_answered: bool = False  # the draft model, since it last rested
    _num_silent: int = 0  # tokens of the text without an answer of the draft model
    _looked_at: int = -1  # length of the text that the index was asked about
    _found: Continuation = field(default_factory=Continuation)  # what it said

    @classmethod
    def of(cls, asking: Asking, ngrams: NgramDrafter | None, resting: Resting, *, has_model: bool) -> "Stream":
        """The stream of a session. has_model: the node has a draft model."""
        request = asking.request
        uses_model = has_model and request.drafter in ("auto", "model") and request.max_draft > 0
        return cls(asking, ngrams, Chain(request) if uses_model else None, resting)

    @property
    def request(self) -> Request:
        return self.asking.request

    # -- events ----------------------------------------------------------------------------------------------------

    def begin(self, tokens: Sequence[int]) -> list[Propose]:
        """The session is opened: the verify node knows no draft of it. The draft model reads the text."""
        self.permitted, self.newest, self._newest, self._looked_at = 0, None, Continuation(), -1
        if self.chain is None:
            return []
        self.chain.begin(len(tokens))
        return [self.asking.warm(tokens)]

    def observe(self, verdict: Verdict, num_new: int) -> None:
        """A verdict was applied, and `num_new` of its tokens were new.

        The draft model is judged from its first answer on: before, its cache may still have to catch up with a long
        text. Under the ratio rule rounds wait for it, so that its tokens do not come too late.
        """
        if self.chain is None or not self.permitted or self._by_ratio:
            return
        self._num_silent = 0 if self._has_answered else self._num_silent + num_new
        if self.resting.is_resting or self._has_answered or self._num_silent > MAX_SILENT:
            num_accepted = verdict.num_accepted if verdict.source == "model" else 0
            self.resting.observe(self.request.session_id, num_new, num_accepted)
        self._has_answered = self._has_answered and not self.resting.is_resting

    def answered(self) -> None:
        """The draft model has answered, in time or not."""
        self._has_answered = True

    def answer(self, verdict: Verdict, tokens: Sequence[int]) -> list[Action]:
        """Answers a verdict after which the text is `tokens`: a Draft or an Ack, and a question to the model."""
        self.permitted = min(verdict.may_draft, self.request.max_draft)
        self.asking.least_probability = probabilities.bound(verdict.least_probability)
        if self._by_ratio:
            return self._begin_ratio(tokens)
        asked = self._ask(tokens)
        draft = self._next(tokens)
        return [Send(draft or self.acknowledgement(tokens)), *asked]

    def drafted(self, proposal: Proposed, tokens: Sequence[int]) -> list[Action]:
        """The draft model has answered its last question; if it failed, it is asked again after the next verdict."""
        if self.chain is None or not self.chain.extend(proposal):
            return []
        if self._by_ratio:
            return [Send(self._put(Continuation(proposal.tokens), "model", tokens, proposal=proposal.proposal))]
        asked = self._ask(tokens) if proposal.tokens else []
        draft = self._next(tokens)
        return [Send(draft), *asked] if draft is not None else [*asked]

    def repeat(self, tokens: Sequence[int]) -> list[Action]:
        """After a silence: that the text is `tokens`, and what was drafted beyond it."""
        acknowledged: list[Action] = [Send(self.acknowledgement(tokens))]
        if self.newest is None or self.newest.base_len != len(tokens):
            return acknowledged
        return [*acknowledged, Send(self.newest)]

    # -- the match rule --------------------------------------------------------------------------------------------

    def _ask(self, tokens: Sequence[int]) -> list[Propose]:
        """Has the draft model go on with its chain, or with a new one if the text has left that."""
        if self.chain is None:
            return []
        if not self.chain.follows(tokens):  # what is drafted for the old one is not taken any more
            self.chain.begin(len(tokens))
        return self._ask_for(self.chain, tokens) if not self.resting.is_resting else []

    def _ask_for(self, chain: Chain, tokens: Sequence[int]) -> list[Propose]:
        wanted = chain.ask(tokens, self.permitted, self.asking.least_probability)
        return [self.asking.draft(wanted, len(wanted.tokens) - len(tokens))] if wanted is not None else []

    def _next(self, tokens: Sequence[int]) -> Draft | None:
        """The draft for the text `tokens`; None where the verify node has all that it would say."""
        rest, is_complete = self._rest(tokens), self._is_complete
        best, source = self._best(tokens, rest)
        if best.tokens == rest.tokens[: len(best.tokens)]:
            if not self._has_to_complete(rest, tokens):
                return None
            best, source = rest, self.newest.source if self.newest is not None else source
        elif source == "model" and not is_complete and _is_little_more(best, rest):
            return None
        tree = None
        if source == "model" and self.chain is not None and best.tokens == self.chain.rest(tokens).tokens:
            tree = Tree.of(best, self.chain.alternatives(tokens), self.asking.least_probability)
        return self._put(best, source, tokens, tree=tree, is_complete=is_complete)

    def _best(self, tokens: Sequence[int], rest: Continuation) -> tuple[Continuation, NodeSource]:
        """Returns the draft that is expected to bring most: the index's or the draft model's."""
        found = rest if len(rest.tokens) >= ENOUGH else self._find(tokens, NGRAM_LENGTH)
        drafted = self.chain.rest(tokens) if self.chain is not None and self.permitted else Continuation()
        return (drafted, "model") if drafted.num_expected > found.num_expected else (found, "ngram")

    def _rest(self, tokens: Sequence[int]) -> Continuation:
        """Returns the newest draft's tokens beyond the text; nothing if the text went on otherwise."""
        if self.newest is None:
            return Continuation()
        num_new, newest = len(tokens) - self.newest.base_len, self._newest
        if newest.tokens[:num_new] != tuple(tokens[self.newest.base_len :]):
            return Continuation()
        return Continuation(newest.tokens[num_new:], newest.probabilities[num_new:])

    @property
    def _is_complete(self) -> bool:
        """True if nothing more comes beyond this text, once the draft model was asked what it is to be asked."""
        return self.chain is None or not self.chain.is_asked

    def _has_to_complete(self, rest: Continuation, tokens: Sequence[int]) -> bool:
        """Returns whether the verify node, which has `rest`, would wait for more in vain."""
        if not self._is_complete or not self.permitted:
            return False
        newest = self.newest
        return newest is None or not newest.complete or not (rest.tokens or newest.base_len == len(tokens))

    # -- the ratio rule --------------------------------------------------------------------------------------------

    @property
    def _by_ratio(self) -> bool:
        return self.request.verification == "ratio"

    def _begin_ratio(self, tokens: Sequence[int]) -> list[Action]:
        """Drafts anew: nothing of an older chain is sent again."""
        found, asked = self._find(tokens, self.permitted), []
        if self.chain is not None:
            self.chain.begin(len(tokens))
            asked = self._ask_for(self.chain, tokens) if found.num_expected < LEAST_EXPECTED else []
        if asked or not self.permitted:
            return [Send(self.acknowledgement(tokens)), *asked]
        proposal = certain(found.tokens) if found.tokens else None
        return [Send(self._put(found, "ngram", tokens, proposal=proposal))]

    # -- messages --------------------------------------------------------------------------------------------------

    def _find(self, tokens: Sequence[int], length: int) -> Continuation:
        """Returns the index's draft, at most `length` tokens; it is asked once about a text."""
        if self.ngrams is None:
            return Continuation()
        if self._looked_at != len(tokens):
            self._looked_at = len(tokens)
            self._found = self.ngrams.draft(tokens, min(length, self.request.max_draft), self.asking.least_probability)
        return self._found

    def _put(
        self,
        drafted: Continuation,
        source: NodeSource,
        tokens: Sequence[int],
        *,
        tree: Tree | None = None,
        proposal: bytes | None = None,
        is_complete: bool = True,
    ) -> Draft:
        """The draft beyond the text `tokens` that is sent from here on."""
        self._newest = drafted
        self.newest = Draft(
            self.request.session_id,
            self.asking.epoch,
            len(tokens),
            drafted.tokens if tree is None else tuple(tree.tokens),
            b""
            if self._by_ratio
            else probabilities.encode(drafted.probabilities if tree is None else tree.probabilities),
            source,
            None if tree is None else trees.pack(tree.parents),
            is_complete,
            proposal,
        )
        return self.newest

    def acknowledgement(self, tokens: Sequence[int]) -> Ack:
        return Ack(self.request.session_id, self.asking.epoch, len(tokens))


def _is_little_more(chain: Continuation, sent: Continuation) -> bool:
    """True for a chain that continues what was sent and is not twice as long: each message takes both nodes' time."""
    return chain.tokens[: len(sent.tokens)] == sent.tokens and len(chain.tokens) < 2 * len(sent.tokens)
