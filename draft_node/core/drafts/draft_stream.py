"""A session's stream of drafts: the draft sent after each verdict, and the requests to the draft model in between.

A verdict causes a lookup in the n-gram index, unless enough of the newest draft is left. A draft that is sent takes the
place of the Ack. The draft model drafts a tree beyond the text while the verify node permits drafts and the model's
tokens come in time. Of the two drafts, the stream sends the one with more expected accepted tokens. The verify node
stores the newest draft while the text follows it.

Under the ratio rule one draft is made per verdict, with noise of its own. The draft's length depends on the permission
and never on its tokens, so that it reveals nothing about the noise that accepts or rejects them. No I/O.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from draft_node.core.actions import Action, Send
from draft_node.core.drafts.draft_tree import DraftTree
from draft_node.core.drafts.ngrams import NgramDrafter
from draft_node.core.drafts.resting import Resting
from draft_node.core.generation import Generation
from goodspeed.drafting.proposing import Propose, Proposed
from goodspeed.drafting.sources import MODEL, NGRAM, is_awaited, permits
from goodspeed.drafting.tree import Nodes
from goodspeed.exact import trees
from goodspeed.exact.proposal_bytes import certain
from goodspeed.ngram.drafting import Continuation
from goodspeed.wire import probabilities
from goodspeed.wire.fields import MAX_DRAFT, NodeSource
from goodspeed.wire.handshake import Welcome
from goodspeed.wire.messages import Ack, Draft, Verdict

NGRAM_LENGTH = 32
"""Most n-gram tokens in a draft: the text may have grown by some before it arrives."""

MAX_SILENT = 128
"""Tokens by which a text may grow without an answer from the draft model; more count against the model."""

ENOUGH = NGRAM_LENGTH // 2
"""A newest draft with this many tokens left is not replaced: a new draft at each verdict would mostly repeat it."""

LEAST_EXPECTED = 1.0
"""Under the ratio rule n-gram tokens are sent instead of the model's if at least this many of them are expected to be
accepted, since n-gram drafts take no time."""

LEAST_GAIN = 1.0
"""Expected tokens by which a new draft exceeds the newest one, unless it has twice as many nodes."""


@dataclass(slots=True)
class DraftStream:
    """The drafts of one session, and its requests to the draft model."""

    request: Generation
    ngrams: NgramDrafter | None = None
    tree: DraftTree | None = None  # None: no draft model drafts
    resting: Resting = field(default_factory=Resting)  # of the draft model, shared by all sessions
    epoch: int = 0  # number of times the session was opened
    round: int = -1  # number of the latest request to the draft model, so that a late answer is recognised
    permitted: int = 0  # tokens beyond the text that the draft model may draft
    least_probability: float = 0.0  # path probability below which the verify node verifies no token
    newest: Draft | None = None  # the latest draft sent
    _newest: Nodes = field(default_factory=Nodes)  # its tokens
    _has_answered: bool = False  # the draft model has answered since its latest rest
    _num_silent: int = 0  # tokens of the text since the draft model's latest answer
    _looked_at: int = -1  # length of the text at the latest index lookup
    _found: Continuation = field(default_factory=Continuation)  # result of that lookup

    @classmethod
    def of(
        cls, request: Generation, ngrams: NgramDrafter | None, resting: Resting, num_parallel: int | None
    ) -> "DraftStream":
        """Returns the stream of a session.

        num_parallel: tokens that the draft model drafts in one forward pass; None: the node has no draft model.
        """
        if num_parallel is None or not permits(request.drafter, MODEL) or request.max_draft <= 0:
            return cls(request, ngrams, None, resting)
        return cls(request, ngrams, DraftTree(request, num_parallel), resting)

    # -- events ----------------------------------------------------------------------------------------------------

    def begin(self, tokens: Sequence[int]) -> list[Propose]:
        """Begins an epoch: the session is opened without a draft. The draft model prefills it, unless it rests."""
        self.epoch += 1
        self.round += 1
        self.permitted, self.newest, self._newest, self._looked_at = 0, None, Nodes(), -1
        if self.tree is None:
            return []
        self.tree.begin(len(tokens))
        if not self._by_ratio and (self.resting.is_resting or not self.resting.is_permitted):
            return []  # it prefills when it is asked for a draft
        return [Propose(self.request, self.epoch, self.round, tuple(tokens), 0)]

    def meet(self, welcome: Welcome) -> None:
        """Adapts the drafts to a verify node that is to be asked."""
        if self.ngrams is not None:
            self.ngrams.vocab_size = welcome.vocab_size
        if self.tree is not None:
            self.tree.has_branches = welcome.trees

    def observe(self, verdict: Verdict, num_new: int) -> None:
        """Judges the draft model by an applied verdict. num_new: tokens of the verdict that were new.

        Judging starts with the model's first answer, or after MAX_SILENT tokens: until then the model may be
        prefilling a long text. Under the ratio rule rounds wait for the model, so its tokens never come too late.
        """
        if self.tree is None or not self.permitted or self._by_ratio:
            return
        self._num_silent = 0 if self._has_answered else self._num_silent + num_new
        if self.resting.is_resting or self._has_answered or self._num_silent > MAX_SILENT:
            num_accepted = verdict.num_accepted if is_awaited(verdict.source) else 0
            self.resting.observe(self.request.session_id, num_new, num_accepted)
        self._has_answered = self._has_answered and not self.resting.is_resting

    def answered(self) -> None:
        """Notes an answer of the draft model, in time or not."""
        self._has_answered = True

    def answer(self, verdict: Verdict, tokens: Sequence[int]) -> list[Action]:
        """Answers a verdict with a Draft or an Ack, and a request to the model. tokens: the text after the verdict."""
        self.permitted = min(verdict.may_draft, self.request.max_draft)
        self.least_probability = probabilities.bound(verdict.least_probability)
        if self.permitted or self._has_room(tokens):
            self.resting.is_permitted = self.permitted > 0
        if self._by_ratio:
            return self._begin_ratio(tokens)
        asked = self._ask(tokens)
        draft = self._next(tokens)
        return [Send(draft or self.acknowledgement(tokens)), *asked]

    def _has_room(self, tokens: Sequence[int]) -> bool:
        """True if the model might draft for this text: whatever is not permitted then is permitted to no text."""
        num_left = len(self.request.prompt) + self.request.max_tokens - len(tokens)
        return self.tree is not None and num_left > 1

    def drafted(self, proposal: Proposed, tokens: Sequence[int]) -> list[Action]:
        """Handles the draft model's answer to the latest request. A failed model is asked again at the next verdict."""
        num_new = None if self.tree is None else self.tree.extend(proposal)
        if self.tree is None or num_new is None:
            return []
        if self._by_ratio:
            return [Send(self._put(self.tree.rest(tokens), MODEL, tokens, proposal=proposal.proposal))]
        asked = self._ask(tokens) if num_new else []
        draft = self._next(tokens)
        return [Send(draft), *asked] if draft is not None else [*asked]

    def repeat(self, tokens: Sequence[int]) -> list[Action]:
        """Sends the acknowledgement again after a silence, and the newest draft if it begins at the text's end."""
        acknowledged: list[Action] = [Send(self.acknowledgement(tokens))]
        if self.newest is None or self.newest.base_len != len(tokens):
            return acknowledged
        return [*acknowledged, Send(self.newest)]

    # -- the match rule --------------------------------------------------------------------------------------------

    def _ask(self, tokens: Sequence[int]) -> list[Propose]:
        """Has the draft model continue its tree, or start a new one if the text has left the tree."""
        if self.tree is None:
            return []
        if not self.tree.follows(tokens):  # ignores an outstanding answer for the old tree
            self.tree.begin(len(tokens))
        return self._ask_for(self.tree, tokens) if not self.resting.is_resting else []

    def _ask_for(self, tree: DraftTree, tokens: Sequence[int]) -> list[Propose]:
        wanted = tree.ask(tokens, self.permitted, self.least_probability, self.epoch, self.round + 1)
        if wanted is None:
            return []
        self.round += 1
        return [wanted]

    def _next(self, tokens: Sequence[int]) -> Draft | None:
        """Returns the draft to send for the text `tokens`; None: it would add too little to the newest one."""
        rest, is_complete = self._rest(tokens), self._is_complete
        best, source = self._best(tokens, rest)
        if rest.includes(best):
            if not self._has_to_complete(rest, tokens):
                return None
            best, source = rest, self.newest.source if self.newest is not None else source
        elif is_awaited(source) and not is_complete and _is_little_more(best, rest):
            return None
        return self._put(best, source, tokens, is_complete=is_complete)

    def _best(self, tokens: Sequence[int], rest: Nodes) -> tuple[Nodes, NodeSource]:
        """Returns the draft with more expected accepted tokens: the index's or the draft model's."""
        is_enough = len(trees.first_choices(rest.parents)) >= ENOUGH
        found = rest if is_enough else Nodes.of(self._find(tokens, NGRAM_LENGTH))
        if self.tree is None or not self.permitted:
            return found, NGRAM
        drafted = self.tree.rest(tokens).likeliest(MAX_DRAFT, self.request.stop_ids)
        return (drafted, MODEL) if drafted.num_expected > found.num_expected else (found, NGRAM)

    def _rest(self, tokens: Sequence[int]) -> Nodes:
        """Returns the newest draft's tokens beyond the text; none if the text left the draft."""
        return Nodes() if self.newest is None else self._newest.after(tokens[self.newest.base_len :]) or Nodes()

    @property
    def _is_complete(self) -> bool:
        """True if no answer of the draft model is outstanding; valid after `_ask`."""
        return self.tree is None or not self.tree.is_asked

    def _has_to_complete(self, rest: Nodes, tokens: Sequence[int]) -> bool:
        """Returns whether the verify node has to learn that nothing follows `rest`, so that it does not wait."""
        if not self._is_complete or not self.permitted:
            return False
        newest = self.newest
        return newest is None or not newest.complete or not (rest.tokens or newest.base_len == len(tokens))

    # -- the ratio rule --------------------------------------------------------------------------------------------

    @property
    def _by_ratio(self) -> bool:
        return self.request.verification == "ratio"

    def _begin_ratio(self, tokens: Sequence[int]) -> list[Action]:
        """Makes a new draft for the text: tokens of an older chain are never sent again."""
        found, asked = self._find(tokens, self.permitted), []
        if self.tree is not None:
            self.tree.begin(len(tokens))
            asked = self._ask_for(self.tree, tokens) if found.num_expected < LEAST_EXPECTED else []
        if asked or not self.permitted:
            return [Send(self.acknowledgement(tokens)), *asked]
        proposal = certain(found.tokens) if found.tokens else None
        return [Send(self._put(Nodes.of(found), NGRAM, tokens, proposal=proposal))]

    # -- messages --------------------------------------------------------------------------------------------------

    def _find(self, tokens: Sequence[int], length: int) -> Continuation:
        """Returns the index's draft of at most `length` tokens; looks a text up once."""
        if self.ngrams is None:
            return Continuation()
        if self._looked_at != len(tokens):
            self._looked_at = len(tokens)
            self._found = self.ngrams.draft(tokens, min(length, self.request.max_draft), self.least_probability)
        return self._found

    def _put(
        self,
        drafted: Nodes,
        source: NodeSource,
        tokens: Sequence[int],
        *,
        proposal: bytes | None = None,
        is_complete: bool = True,
    ) -> Draft:
        """Makes the newest draft, which follows the text `tokens`."""
        self._newest = drafted
        self.newest = Draft(
            self.request.session_id,
            self.epoch,
            len(tokens),
            drafted.tokens,
            b"" if self._by_ratio else probabilities.encode(drafted.probabilities),
            source,
            None if trees.is_chain(drafted.parents) else trees.pack(drafted.parents),
            is_complete,
            proposal,
        )
        return self.newest

    def acknowledgement(self, tokens: Sequence[int]) -> Ack:
        return Ack(self.request.session_id, self.epoch, len(tokens))


def _is_little_more(drafted: Nodes, sent: Nodes) -> bool:
    """True if the tree adds few nodes to the sent ones, and few expected tokens: a message costs both nodes time."""
    is_longer = len(drafted.tokens) >= 2 * len(sent.tokens) or not drafted.includes(sent)
    return not is_longer and drafted.num_expected < sent.num_expected + LEAST_GAIN
