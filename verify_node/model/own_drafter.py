"""Drafts for the next round with the verify node's own draft model, as soon as a round is decided.

It uses the drafter of draft nodes (`goodspeed.drafting`): one forward pass drafts for all sessions, and the KV caches
follow the texts. It drafts chains, with the match rule's noise. Passes run only while the expected gain is worth their
time. All of this runs on the model thread.
"""

import logging
import time
from collections.abc import Container, Mapping, Sequence

import torch
from msgspec.structs import replace

from goodspeed.drafting.drafter import Drafter
from goodspeed.drafting.proposing import Propose, Proposed
from goodspeed.drafting.sources import OWN
from goodspeed.drafting.unfinished_proposal import UnfinishedProposal
from goodspeed.engine.base import Checkpoint, Engine
from goodspeed.fair.estimators import smoothed
from goodspeed.wire import probabilities
from verify_node.scheduler.round import Drafting, DraftRequest, Outcome, Round
from verify_node.session.draft_tokens import DraftTokens

logger = logging.getLogger("goodspeed.verify")

MAX_LENGTH = 8
"""Longest draft."""

PREFILL, LEAST_PREFILL = 256, 16
"""Most tokens that a round prefills for all sessions that lag behind, and the number that it may prefill even if the
target's own prefill leaves no room. The rest of a long prompt follows in later rounds."""

FIRST_PROBABILITY = 0.7
"""Expected acceptance probability of a draft's first token, before its pass."""

SMOOTHING, FORGETTING = 0.1, 0.98
"""Smoothing step of a pass's time, and factor on that time in a round without passes: one slow pass must not end
drafting forever."""

RESTED_ROUNDS, MAX_RESTED_ROUNDS = 64, 1 << 14
"""Rounds without own drafts after a failure; twice as many after each further one, at most MAX_RESTED_ROUNDS."""


class OwnDrafter:
    """The draft model and its KV caches, by session of the target."""

    def __init__(self, checkpoint: Checkpoint, engine: Engine) -> None:
        self.checkpoint = checkpoint
        self.engine = engine
        self.drafter = Drafter(checkpoint, engine, max_width=1)
        self.num_failures = 0
        self.pass_s = 0.0  # of one token for each session, smoothed
        self._rests_until = 0  # number of the round

    def add_to(self, planned: Round, outcomes: Sequence[Outcome]) -> tuple[list[Outcome], Drafting]:
        """Returns the outcomes with drafts for the next round, and a summary of the drafting.

        If the model fails, its caches are dropped, it rests for some rounds, and outcomes are returned as they are.
        """
        started, passes_before = time.perf_counter(), self.drafter.num_passes
        found: dict[bytes, DraftTokens] = {}
        if planned.draft_requests and planned.number >= self._rests_until:
            requests = {one.session_id: one for one in planned.draft_requests}
            try:
                self._add(planned, outcomes)
                found = {one.session_id: _kept(one, requests[one.session_id]) for one in self._draft(planned, requests)}
            except Exception as error:
                self._fail(planned.number, error)
        with_drafts = [replace(one, own=found[one.session_id]) if one.session_id in found else one for one in outcomes]
        num_passes = self.drafter.num_passes - passes_before
        return with_drafts, Drafting(time.perf_counter() - started, num_passes, planned.number < self._rests_until)

    def keep(self, sessions: Container[bytes], begun: Container[bytes] = ()) -> None:
        """Frees the caches of all other sessions (ended or preempted), and of those in `begun`, which restarted."""
        for key in [key for key in self.drafter.caches if key not in sessions or key in begun]:
            self.drafter.forget(key)

    def _fail(self, number: int, error: Exception) -> None:
        rests = min(RESTED_ROUNDS << min(self.num_failures, 16), MAX_RESTED_ROUNDS)
        self.num_failures += 1
        self._rests_until = number + rests
        told = "the draft model failed (%s: %s); texts continue without it; retrying after %d rounds"
        logger.error(told, type(error).__name__, error, rests, exc_info=error)
        held: BaseException | None = error
        while held is not None:  # frames of the error and of its causes hold the failed pass's tensors
            held.__traceback__, held = None, held.__cause__ or held.__context__
        self.drafter.abandon()
        if self.checkpoint.device.type == "cuda":
            torch.cuda.empty_cache()

    # -- one round -------------------------------------------------------------------------------------------------

    def _add(self, planned: Round, outcomes: Sequence[Outcome]) -> None:
        """Requests drafts for the unfinished texts."""
        decided = {outcome.session_id: outcome.tokens for outcome in outcomes if not outcome.failed}
        for request in planned.draft_requests:
            new, opened = decided.get(request.session_id, ()), request.opened
            room = min(request.most, self.checkpoint.context_len - len(request.text)) - len(new)
            length = min(MAX_LENGTH, opened.max_draft, room)
            if not new or length <= 0 or any(token in opened.stop_ids for token in new):
                continue
            self.drafter.add(
                Propose(
                    opened if opened.verification == "match" else replace(opened, verification="match"),
                    opened.epoch,
                    planned.number,
                    (*request.text, *new),
                    length,
                    least_probability=min(1.0, request.least_probability),  # the first token is drafted in any case
                    calibrated=request.calibrated,
                    prefix_scope=request.prefix_scope,
                )
            )

    @torch.inference_mode()
    def _draft(self, planned: Round, requests: Mapping[bytes, DraftRequest]) -> list[Proposed]:
        """Runs passes while they are worth their time. Texts that lag behind are prefilled in the first pass only."""
        drafter, done = self.drafter, list[Proposed]()
        room = min(PREFILL, max(LEAST_PREFILL, planned.room_left))
        while True:
            going = [job for job in drafter.unfinished if not drafter.caches.lags(job)]
            lags = len(going) < len(drafter.unfinished)
            worth = sum(_expected(job, requests[job.session_id], drafter.num_parallel) for job in going)
            if not (lags and room) and not (going and worth >= planned.worth_per_s * self.pass_s):
                break
            started = time.perf_counter()
            done += drafter.step(room)
            if not (lags and room):
                self.pass_s = smoothed(self.pass_s, time.perf_counter() - started, SMOOTHING)
            room = 0.0
        if going and room:  # no pass was run
            self.pass_s *= FORGETTING
        return done + drafter.give_up(empty=False)


def _expected(job: UnfinishedProposal, request: DraftRequest, num_parallel: int) -> float:
    """Returns the worth that a draft's next pass is expected to add, less that of the time to verify its tokens.

    Assumes that each token is as probable as the previous ones.
    """
    path, num_drawn = job.tree.path_probability(job.newest), min(num_parallel, job.length - job.num_drafted)
    each = path ** (1.0 / job.num_drafted) if job.num_drafted else FIRST_PROBABILITY
    likely = (path * each**depth for depth in range(1, num_drawn + 1))
    return request.worth * sum(max(0.0, probability - request.least_probability) for probability in likely)


def _kept(proposed: Proposed, request: DraftRequest) -> DraftTokens:
    """Returns the tokens of a draft up to the text's end.

    The target draws the end in the same round anyway. The first token is kept even if it is not worth verifying: only
    then does its claim remain tested (`Moved.claims`).
    """
    codes, path, length = probabilities.encode(proposed.probabilities or ()), 1.0, 0
    for token, code in zip(proposed.tokens, codes, strict=True):
        path *= request.calibrated[code]
        if token in request.opened.stop_ids or (length and path < request.least_probability):
            break
        length += 1
    return DraftTokens(proposed.tokens[:length], codes[:length], OWN)
