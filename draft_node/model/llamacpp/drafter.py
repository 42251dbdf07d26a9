"""The draft model at llama.cpp's server: the server computes, and this node draws from the likeliest tokens.

A step asks the server once for each session with a proposal, for all at the same time. The server writes some tokens
greedily after the session's likeliest leaf, and returns the likeliest tokens at each of these positions. From these the
draft node draws with the target's noise, as a draft model of its own does. It follows what the server wrote as far as
its own draws, or alternatives to them, are the same tokens. At temperature 0 they always are.

The server does not return the likeliest tokens of every position (`Place`). At temperature 0 without rules what it
wrote is the draw. Otherwise the next step asks for that position alone, and forces a token for which it returns them.

Rules are applied as far as they need no more than the likeliest tokens: banned ids, biases, `min_p`, constraints, top-k
and top-p. The verify node decides in any case. Runs on the model thread.
"""

from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import exp, log

import numpy as np

from draft_node.model.llamacpp.server import Ask, Choice, Place, Server
from goodspeed.constraint.compiling import Constraints
from goodspeed.drafting.confidence import AT_NO_CONFIDENCE
from goodspeed.drafting.draft_model import DraftModel
from goodspeed.drafting.proposing import Proposed, banned_at
from goodspeed.drafting.unfinished_proposal import UnfinishedProposal
from goodspeed.exact.logits.token_counts import num_common
from goodspeed.exact.logits.truncation import Kept
from goodspeed.exact.noise_at import match_key, noise_at
from goodspeed.exact.trees import BASE

PREFILL_CHUNK = 256
"""Most tokens of a text that one request makes the server compute, so that no step takes too long."""

STEP_TOKENS = 4 * PREFILL_CHUNK
"""Most tokens that the server computes in one step, unless one text alone needs more."""

NUM_GREEDY, NUM_DRAWN = 8, 32
"""Likeliest tokens that the server returns for a position, at temperature 0 and above."""

AT_ONCE = 2
"""Tokens that a request asks for above temperature 0: the server's second token is of use if its first one is drawn,
or is an alternative."""

UNTOLD = 0.55
"""Confidence in a greedy token whose probability the server does not return.

SmolLM2-135M gave its own greedy tokens within characters 0.547 on average (121, in eight languages and emoji), and all
its greedy tokens there 0.549."""


@dataclass(slots=True)
class _Slot:
    """One of the server's slots, and the text whose keys and values it should have."""

    number: int
    tokens: tuple[int, ...] = ()  # empty: what it has is not used, since it is another text's
    untold: tuple[int, ...] = ()  # text after which the server did not tell the likeliest tokens


class LlamaDrafter(DraftModel):
    """Drafts by llama.cpp's server: `add` proposals, then `step` until they are complete."""

    def __init__(self, server: Server, num_tokens: int, constraints: Constraints | None = None) -> None:
        """num_tokens: of the model. constraints: compiler for structured output; None: it is ignored."""
        super().__init__(constraints)
        self.server = server
        self._num_tokens = self.vocab_size = num_tokens
        self.context_len = server.context_len
        self._slots = self._unused_slots()

    def forget(self, session_id: bytes) -> None:
        """Drops the state of a closed session; its slot is the next to be taken."""
        super().forget(session_id)
        if session_id in self._slots:
            self._slots.move_to_end(session_id, last=False)

    def abandon(self) -> list[Proposed]:
        """Ends and returns all proposals, empty, after the server failed; no longer relies on what its slots cached."""
        self._slots = self._unused_slots()
        return self.give_up()

    def close(self) -> None:
        self.server.close()

    def step(self) -> list[Proposed]:
        """Asks the server once for every unfinished proposal; returns those that are complete."""
        asked: list[tuple[UnfinishedProposal, int, _Slot, Ask]] = []
        num_new = 0  # tokens that the server computes in this step
        done: list[UnfinishedProposal] = []
        in_use: set[int] = set()
        for job in self._jobs.values():
            leaf = BASE if job.length == 0 else next(iter(job.leaves(1)), None)
            if leaf is None or not job.by_match or len(job.text) + job.tree.depth(leaf) >= self.context_len:
                done.append(job)
            elif (slot := self._slot(job.session_id, in_use)) is not None:
                ask = self._ask(job, leaf, slot)
                new = len(ask.prompt) + ask.num_tokens - num_common(slot.tokens, ask.prompt)
                if asked and num_new + new > STEP_TOKENS:
                    continue  # in a later step
                num_new += new
                in_use.add(slot.number)
                self._give(slot, job.session_id)
                asked.append((job, leaf, slot, ask))
        answers = self.server.complete([ask for *_, ask in asked])
        for (job, leaf, slot, ask), places in zip(asked, answers, strict=True):
            if places is None or self._take(job, leaf, slot, ask, places):
                done.append(job)
        return self._end(done)

    def _unused_slots(self) -> OrderedDict[bytes, _Slot]:
        """Returns the slots by session, the least recently used first; no session has these keys."""
        return OrderedDict((bytes([number]), _Slot(number)) for number in range(self.server.num_slots))

    def _slot(self, session_id: bytes, in_use: Collection[int]) -> _Slot | None:
        """Returns the session's slot, else an empty one for the least recently used slot not in use; None: all are."""
        if session_id in self._slots:
            return self._slots[session_id]
        number = next((slot.number for slot in self._slots.values() if slot.number not in in_use), None)
        return None if number is None else _Slot(number)  # texts of two users share nothing

    def _give(self, slot: _Slot, session_id: bytes) -> None:
        """Gives a slot to a session, as the most recently used one; the former session loses it."""
        del self._slots[next(key for key, each in self._slots.items() if each.number == slot.number)]
        self._slots[session_id] = slot

    # -- one session -----------------------------------------------------------------------------------------------

    def _ask(self, job: UnfinishedProposal, leaf: int, slot: _Slot) -> Ask:
        """Returns the request for what follows a leaf, or for the next part of a text that the slot does not have."""
        prompt, is_new = (*job.text, *job.path(leaf)), not slot.tokens
        end = num_common(slot.tokens, prompt) + PREFILL_CHUNK
        if end < len(prompt):
            return Ask(slot.number, prompt[:end], 0, 0, is_new)
        depth = job.tree.depth(leaf)
        most = min(job.length - job.num_drafted, job.propose.max_depth - depth, self.context_len - len(prompt))
        is_drawn = job.propose.request.sampling.temperature > 0
        num_tokens, num_top = (min(AT_ONCE, most), NUM_DRAWN) if is_drawn else (most, NUM_GREEDY)
        if slot.untold == prompt:
            return Ask(slot.number, prompt, 1, num_top, is_new, is_forced=True)
        return Ask(slot.number, prompt, num_tokens, num_top, is_new)

    def _take(self, job: UnfinishedProposal, leaf: int, slot: _Slot, ask: Ask, places: Sequence[Place]) -> bool:
        """Takes an answer; returns whether the proposal is complete."""
        slot.tokens = (*ask.prompt, *(place.id for place in places[:-1]))
        if ask.num_tokens:
            if not places or (ask.is_forced and not places[0].top_logprobs):  # as would be the same request's answer
                return True
            slot.untold = self._follow(job, leaf, places[: ask.num_tokens])
            return job.is_complete
        return job.length == 0 and len(ask.prompt) == len(job.text)

    def _follow(self, job: UnfinishedProposal, leaf: int, places: Sequence[Place]) -> tuple[int, ...]:
        """Draws a token at each place, as long as the tokens that the server wrote before it are in the tree.

        Returns the text after which nothing could be drawn, as the server did not tell the likeliest tokens; or ().
        """
        tree, parent, is_first = job.tree, leaf, True
        is_greedy = not job.propose.request.sampling.temperature and not job.has_rules
        for place in places:
            top = place.top_logprobs or ([Choice(place.id, log(UNTOLD))] if is_greedy else [])
            if not top:
                return (*job.text, *job.path(parent))
            drawn = self._draw(job, parent, top)
            if not drawn:  # nothing is permitted there
                tree.close(parent)
                break
            children = {token: tree.add(token, probability, parent) for token, probability in drawn}
            if is_first:
                job.num_drafted += 1
                job.newest = children[drawn[0][0]]
            is_first = is_first and place.id == drawn[0][0]
            after = children.get(place.id)
            if after is None or job.ends_with(after):
                break
            parent = after
        return ()

    def _draw(self, job: UnfinishedProposal, parent: int, top: Sequence[Choice]) -> list[tuple[int, float]]:
        """Returns the token drawn after a node and its alternatives, the best first, with acceptance probabilities."""
        request, position = job.propose.request, len(job.text) + job.tree.depth(parent)
        logits = self._permitted(job, parent, position, top)
        if not logits:
            return []
        sampling, kept = request.sampling, logits
        if sampling.temperature:
            noises = noise_at(match_key(sampling.seed, position), logits)
            temperature = max(sampling.temperature, 1e-30)  # as the target, so that no logit becomes infinite
            tempered = {token: logit / temperature for token, logit in logits.items()}
            scores = {token: tempered[token] - log(noise) for token, noise in zip(logits, noises, strict=True)}
            if sampling.top_k or sampling.top_p < 1.0:
                found = Kept.of(np.array([list(tempered.values())]), [sampling]).tokens.tolist()
                tokens = list(logits)
                kept = {tokens[index]: 0.0 for index in found} or logits  # a hostile server's may be infinite
        else:
            scores = logits
        first = max(kept, key=lambda token: (scores[token], -token))
        confidence = next(exp(min(0.0, choice.logprob)) for choice in top if choice.id == first)
        probability = AT_NO_CONFIDENCE + (1.0 - AT_NO_CONFIDENCE) * confidence
        others = sorted(scores.keys() - {first}, key=lambda token: (-scores[token], token))
        return [(first, probability), *zip(others, job.others(parent, probability), strict=False)]

    def _permitted(
        self, job: UnfinishedProposal, parent: int, position: int, top: Sequence[Choice]
    ) -> dict[int, float]:
        """Returns the logits of the likeliest tokens that the rules permit after a node."""
        request = job.propose.request
        banned, words = banned_at(request, position), self._allowed(job, job.path(parent))
        bits = None if words is None else words[0].tolist()
        logits = {
            choice.id: choice.logprob
            for choice in top
            if choice.id < min(self._num_tokens, self.vocab_size)
            and choice.id not in banned
            and (bits is None or (choice.id < 32 * len(bits) and bits[choice.id // 32] >> choice.id % 32 & 1))
        }
        rules = request.logit_rules
        if rules is None or not logits:
            return logits
        for each in rules.logit_bias:
            if each.token in logits:
                logits[each.token] += each.bias
        if rules.min_p and request.sampling.temperature:
            least = max(logits.values()) + request.sampling.temperature * log(rules.min_p)
            logits = {token: logit for token, logit in logits.items() if logit >= least}
        return logits
