"""The draft model: one batched forward pass per drafting step, for all sessions with proposals.

A step extends the likeliest leaves of each session's token tree, as many as are worth their time (`step_size.py`), and
draws alternatives to doubtful tokens. A checkpoint for parallel drafting (PARD, arXiv 2504.18583) gets mask tokens
after the likeliest leaf. Each mask stands for a token that is not known yet, and predicts the token after that.

A proposal first updates the session's KV cache: rejected tokens are truncated, new tokens of the text are prefilled
(many, if nothing was drafted for some time). Under the match rule the draft is drawn with the target's noise; under the
ratio rule it is drawn from exactly the distribution that is sent. Runs on the model thread.
"""

import time
from collections.abc import Sequence
from itertools import compress

import torch
from torch import Tensor

from goodspeed.constraint.compiling import Constraints
from goodspeed.drafting.caches import PREFILL_CHUNK, Caches, Feed
from goodspeed.drafting.confidence import acceptance_probabilities
from goodspeed.drafting.draft_model import DraftModel
from goodspeed.drafting.proposing import Asked, Propose, Proposed, banned_at
from goodspeed.drafting.step_size import MAX_WIDTH, PrefillRows, Widths
from goodspeed.drafting.unfinished_proposal import Row, UnfinishedProposal
from goodspeed.engine.base import Checkpoint, Engine
from goodspeed.exact import proposals
from goodspeed.exact.logits.rules import TextRows, process
from goodspeed.exact.logits.token_counts import CountedTexts
from goodspeed.exact.sampling import Role, SamplingBatch, choose_scored, runners_up, to_probs, uniform
from goodspeed.wire.codec import MAX_MESSAGE_BYTES
from goodspeed.wire.fields import MAX_DRAFT


class Drafter(DraftModel):
    """A draft model with its KV caches; `add` proposals, then `step` until they are complete."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        engine: Engine,
        *,
        kind: str = "lattice",
        k: int = 64,
        constraints: Constraints | None = None,
        max_width: int = MAX_WIDTH,
    ) -> None:
        """kind, k: form of the distributions under the ratio rule (`proposals.make`).

        max_width: most leaves per session and step; 1: alternatives are not extended.
        """
        super().__init__(constraints)
        self.checkpoint = checkpoint
        self.engine = engine
        self.vocab_size = checkpoint.num_tokens
        self.num_parallel = checkpoint.num_parallel
        self.context_len = min(checkpoint.context_len, engine.pool.num_pages * engine.pool.page_size)
        self.max_proposal_bytes = MAX_MESSAGE_BYTES
        self.kind = kind
        self.k = k
        self.num_passes = 0
        self._counted = CountedTexts()
        self.caches: Caches = Caches(engine)
        self.widths = Widths(max_width if engine.has_trees else 1, checkpoint.num_parallel)
        self.prefill_rows = PrefillRows(PREFILL_CHUNK)

    @property
    def num_tokens(self) -> int:
        """Bound of drafted ids. The target has the same tokenizer, but may have fewer or more rows for its tokens."""
        return min(self.checkpoint.num_tokens, self.vocab_size)

    def add(self, propose: Propose) -> None:
        job = UnfinishedProposal(
            propose, min(propose.length, self._longest(propose.request)), is_narrow=self.widths.max_width == 1
        )
        self._begin(job)  # first: a request is answered even if the cache cannot be rewound
        self.caches.rewind(job)

    def forget(self, session_id: bytes) -> None:
        """Drops the state of a closed session and frees its pages."""
        super().forget(session_id)
        self._counted.forget(session_id)
        self.caches.forget(session_id)

    def abandon(self) -> list[Proposed]:
        """Gives up after the model failed, and drops all caches: their contents are uncertain."""
        given_up = self.give_up()
        for session_id in list(self.caches):
            self.engine.pool.withdraw(session_id)
            self.forget(session_id)
        return given_up

    @torch.inference_mode()
    def step(self, room: float | None = None) -> list[Proposed]:
        """Runs one forward pass for all unfinished proposals; returns those that are complete.

        room: tokens of lagging texts to prefill; None: as many as delay other texts' drafts little, or, with none,
        take about a second.
        """
        is_shared = not all(self.caches.lags(job) for job in self._jobs.values())
        if room is None:
            room = self.prefill_rows.choose() if is_shared else self.prefill_rows.alone
        self.caches.begin_step(room)
        began = time.monotonic()
        width = self.widths.choose([job.likely(self.widths.max_width) for job in self._jobs.values()])
        fed: list[tuple[UnfinishedProposal, Feed]] = []
        done: list[UnfinishedProposal] = []
        for job in [self._jobs[key] for key in self.caches if key in self._jobs]:  # the oldest sessions first
            if self.caches.waits_for_another(job):
                continue
            feed = self.caches.reserve(job, self._jobs, width)
            if feed is not None and feed.num_rows:
                fed.append((job, feed))
            elif feed is None or not self.caches.lags(job):  # else others prefill in this step
                done.append(job)
        if fed:
            self.num_passes += 1
            logits = self.engine.forward([self.caches.chunk(job, feed) for job, feed in fed])  # [tokens to draw, vocab]
            for job, _ in fed:
                self.caches.publish(job)
            self._draw_all([row for job, feed in fed for row in _rows(job, feed)], logits)
            took = time.monotonic() - began
            if all(feed.leaves for _, feed in fed):
                self.widths.observe(sum(feed.num_rows for _, feed in fed), took)
            observe = self.prefill_rows.observe if is_shared else self.prefill_rows.observe_alone
            observe(sum(feed.num_prefill for _, feed in fed), took)
        return self._end(done + [job for job, _ in fed if self._is_complete(job)])

    def _longest(self, request: Asked) -> int:
        """Returns the most tokens of a draft; under the ratio rule their distributions must fit into one message."""
        if request.verification == "match":
            return MAX_DRAFT
        return self.max_proposal_bytes // proposals.position_bytes(self.kind, self.num_tokens, self.k)

    def _draw_all(self, rows: Sequence[Row], logits: Tensor) -> None:
        """Draws from logits [len(rows), vocab].

        Draws all rows at once. If a rule depends on the tokens before a row, draws position after position instead.
        """
        if not any(row.place and row.job.has_rules for row in rows):
            self._draw(rows, logits)
            return
        for place in range(max(row.place for row in rows) + 1):
            now = [index for index, row in enumerate(rows) if row.place == place and not row.is_over]
            self._draw([rows[index] for index in now], logits[now])

    def _draw(self, rows: Sequence[Row], logits: Tensor) -> None:
        """Draws a token from each row of logits [len(rows), vocab], by its session's rule."""
        if not rows:
            return
        rows, logits = self._apply_rules(rows, logits)
        match = [index for index, row in enumerate(rows) if row.job.by_match]
        ratio = [index for index, row in enumerate(rows) if not row.job.by_match]
        if match:
            self._draw_by_match([rows[index] for index in match], logits if not ratio else logits[match])
        if ratio:
            self._draw_from_proposals([rows[index] for index in ratio], logits[ratio])

    def _apply_rules(self, rows: Sequence[Row], logits: Tensor) -> tuple[Sequence[Row], Tensor]:
        """Applies the rules to logits; returns the rows that may draw a token, and their logits."""
        if not any(row.job.has_rules for row in rows):
            return rows, logits
        changed = process(logits, [self._text_rows(row) for row in rows], num_tokens=self.num_tokens)
        if changed is logits:
            return rows, logits
        return _drawing(rows, changed, changed.amax(-1) > float("-inf"))

    def _text_rows(self, row: Row) -> TextRows:
        """Returns the input of `process` for the token of a row."""
        job, request = row.job, row.job.propose.request
        rules, path = request.logit_rules, job.path(row.parent)
        banned, words = banned_at(request, row.position), self._allowed(job, path)
        if rules is None:
            return TextRows(banned=[banned] if banned else None, allowed=words)
        is_read = rules.reads_text
        return TextRows(
            paths=[path if is_read else ()],
            rules=rules,
            temperature=request.sampling.temperature,
            banned=[banned],
            counts=self._counted.of(job.session_id, job.text, len(request.prompt)) if is_read else None,
            allowed=words,
        )

    def _draw_by_match(self, rows: Sequence[Row], logits: Tensor) -> None:
        """Draws a token from each row with the target's noise, and alternatives to doubtful ones."""
        batch, positions = self._batch(rows, logits)
        logits = logits[:, : self.num_tokens]
        probs = logits.softmax(-1)
        tokens, scores = choose_scored(logits, probs, batch, positions)
        are_behind = [row.place > 0 for row in rows]
        probabilities = acceptance_probabilities(probs, tokens, are_behind).tolist()
        doubtful: dict[int, tuple[int, list[float]]] = {}  # by row: the parent, and the alternatives' probabilities
        for index, (row, token, probability) in enumerate(zip(rows, tokens.tolist(), probabilities, strict=True)):
            parent = row.parent
            if not row.is_over:
                row.append(token, probability)
                if others := row.job.others(parent, probability):
                    doubtful[index] = parent, others
        if doubtful:
            most = max(len(others) for _, others in doubtful.values())
            found = runners_up(logits, tokens, scores, most).tolist()
            for index, (parent, others) in doubtful.items():
                for token, probability in zip(found[index], others, strict=False):
                    if token >= 0:  # rules may leave fewer
                        rows[index].job.tree.add(token, probability, parent)

    def _draw_from_proposals(self, rows: Sequence[Row], logits: Tensor) -> None:
        rows, logits = _drawing(rows, logits, logits[:, : self.num_tokens].amax(-1).isfinite())
        if not rows:
            return
        batch, positions = self._batch(rows, logits)
        probs = to_probs(logits, batch, num_tokens=self.num_tokens)
        proposal = proposals.make(probs, self.kind, k=self.k)
        epochs = batch.tensor([row.job.propose.epoch for row in rows], torch.int64)
        rounds = batch.tensor([row.job.propose.round for row in rows], torch.int64)
        seeds = batch.tensor([row.job.noise_seed for row in rows], torch.int64)
        tokens = proposal.sample(uniform(seeds, Role.DRAFT, epochs, rounds, positions))
        for row, packed, token in zip(rows, proposal.pack(), tokens.tolist(), strict=True):
            row.job.positions.append(packed)
            row.append(token, 1.0)

    def _batch(self, rows: Sequence[Row], logits: Tensor) -> tuple[SamplingBatch, Tensor]:
        """Returns the sampling parameters of rows, and the positions [len(rows)] of their tokens."""
        batch = SamplingBatch.of([row.job.propose.request.sampling for row in rows], device=logits.device)
        return batch, batch.tensor([row.position for row in rows], torch.int64)

    def _is_complete(self, job: UnfinishedProposal) -> bool:
        if job.length == 0:
            return self.caches.num_cached(job) >= len(job.text) - 1
        return job.is_complete


def _drawing(rows: Sequence[Row], logits: Tensor, can_draw: Tensor) -> tuple[Sequence[Row], Tensor]:
    """Returns the rows that can draw a token, with their logits.

    A leaf whose row cannot gets no child; if it is the likeliest leaf, the proposal ends.
    """
    draw = can_draw.tolist()
    if all(draw):
        return rows, logits
    for row in compress(rows, (not each for each in draw)):
        row.job.tree.close(row.parent)
        if row.is_first:
            row.job.length = row.job.num_drafted
    return list(compress(rows, draw)), logits[can_draw]


def _rows(job: UnfinishedProposal, feed: Feed) -> list[Row]:
    """Returns the rows of logits of a step."""
    rows = [Row(job, leaf, is_first=place == 0) for place, leaf in enumerate(feed.leaves)]
    return rows + [Row(job, feed.leaves[0], place) for place in range(1, feed.num_masks + 1)]
