"""Decides whether draft models may draft where that may cost the verify node time, by measured progress of the texts.

Selection knows the cost of verifying a token, not of drafting one: on the same cores, draft models slow the forward
pass, the event loop and each other. So where they may share this machine, short stretches of rounds alternate: one in
the other mode lies between two in the better mode, and is compared with their mean (a switchback). The less is known,
the larger a share of the time the other mode has. Chats are short: what was learned stays, and is expected at other
numbers of sessions until they have comparisons of their own. Texts that are drawn at random are compared apart from
greedy ones, since fewer of their drafts are accepted. On other machines drafting costs the verify node only some of its
own work: models there may draft, and are compared only while that work takes much of the time, as with dozens of
sessions in short rounds.
N-gram drafts cost next to nothing anywhere. The verify node's own draft model rests with those of draft nodes: one
comparison tells whether draft models pay.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from operator import mul
from statistics import median

from goodspeed.drafting.sources import MODEL, OWN
from verify_node.scheduler.commit import Moved
from verify_node.session.session import Session

MODELS = (MODEL, OWN)
"""Sources of drafts that are switched off."""

MANY, LEAST_TOKEN_S = 4, 0.006
"""Before the first comparison, draft models are expected to pay if there are fewer than MANY sessions, or if a token
without drafts takes LEAST_TOKEN_S seconds or longer. On shared cores a draft model and its messages take some
milliseconds for each token that they bring: with eight sessions they slowed targets of 13M parameters (2 ms a token)
and SmolLM2 in 4 bits (4 ms), and made one of 116M (9 ms) 1.3 times as fast."""

SETTLING_ROUNDS, COUNTED_ROUNDS = 4, 8
"""Rounds of a stretch. The first are not counted, since draft nodes still act on their previous permissions. Several
comparisons fit into a chat."""

LEAST_SHARE, MOST_DRAFTING, MOST_RESTING = 0.02, 0.1, 0.25
"""Bounds of the share of the busy time for stretches in the other mode: at least, since machines and texts change; with
drafts, and without, at most. Drafting is never to cost much, so it is tried less than resting."""

LEAST_GAIN = 0.02
"""Least logarithm of the ratio with which draft models may draft: what takes others' time is to bring something."""

MEMORY = 40.0
"""Comparisons that count; older ones decay."""

EXPECTED, DOUBT, BORROWED = 0.1, 2.0, 3.0
"""Expected logarithm of the ratio, above or below 0; as how many comparisons it counts where drafting is expected not
to pay (else as one); and the most comparisons that another number of sessions lends instead."""

FIRST_VARIANCE, FIRST_WEIGHT, LARGEST_STEP = 0.15**2, 2, 3.0
"""Prior variance of a comparison, and its weight in comparisons; a step larger than LARGEST_STEP standard deviations is
limited to that size."""

FIRST_TOKENS, FIRST_DRAFTED = 32.0, 0.1
"""Tokens that each load begins with, and the share of them that counts as a draft model's: new texts have no drafts of
models while these read the prompts."""

MUCH_WORK, LITTLE_WORK = 0.1, 0.03
"""Shares of the time that the verify node's own work takes: from the first on, draft models on other machines are
compared, too; below the second no longer. They lie apart since without drafts the work is half as much or less."""

MANY_ELSEWHERE = 16
"""Least number of sessions for that: with fewer, most of the work is the same without drafts."""

SLACK, FEW_RANDOM = 1.4, 1 / 3
"""Hysteresis: the load drops only below its least number of sessions over SLACK, since that number wavers; and texts
count as drawn at random, or greedily, until at most FEW_RANDOM of them are."""


@dataclass
class Stretch:
    """Successive rounds in which draft models may draft, or may not."""

    num_rounds: int = 0
    num_counted: int = 0
    seconds: float = 0.0
    alone_s: float = 0.0  # that rounds without drafts take for the tokens of the counted rounds, by the profile
    counted_s: float = 0.0  # that the counted rounds took
    num_tokens: float = 0.0  # of the counted rounds, clients weighed as in the pace
    num_drafted: float = 0.0  # of these, accepted ones of draft models

    def observe(
        self,
        alone_s: float,
        seconds: float,
        settling_s: float = 0.0,
        num_tokens: float = 0.0,
        num_drafted: float = 0.0,
    ) -> None:
        """settling_s: seconds after the stretch's begin until rounds verify drafts of this stretch."""
        is_settled = self.seconds >= settling_s
        self.num_rounds += 1
        self.seconds += seconds
        if self.num_rounds > SETTLING_ROUNDS and is_settled:
            self.num_counted += 1
            self.alone_s += alone_s
            self.counted_s += seconds
            self.num_tokens += num_tokens
            self.num_drafted += num_drafted

    @property
    def is_over(self) -> bool:
        return self.num_counted >= COUNTED_ROUNDS

    @property
    def is_half(self) -> bool:
        """True once, when enough rounds count to tell that draft models bring nothing: another look could err again."""
        return self.num_counted == COUNTED_ROUNDS // 2

    @property
    def pace(self) -> float | None:
        """Progress of the texts in a second, by what a second without drafts is expected to bring; None if none."""
        return self.alone_s / self.counted_s if min(self.alone_s, self.counted_s) > 0.0 else None


@dataclass
class Comparison:
    """Compares the pace with draft models to the pace without, at one load."""

    prior: float  # mean before the first comparison here
    prior_num: float = 1.0  # comparisons that the prior counts as
    mean: float = 0.0  # of the ratio's logarithm, as compared here
    variance: float = FIRST_VARIANCE
    num: float = 0.0
    num_tokens: float = FIRST_TOKENS  # while draft models might draft
    num_drafted: float = FIRST_TOKENS * FIRST_DRAFTED  # of these, accepted ones of draft models

    def counting(self, stretch: Stretch) -> "Comparison":
        """Returns it with the tokens of a stretch in which draft models might draft."""
        keep = 1.0 - 1.0 / MEMORY
        num_tokens = keep * self.num_tokens + stretch.num_tokens
        num_drafted = keep * self.num_drafted + stretch.num_drafted
        return replace(self, num_tokens=num_tokens, num_drafted=num_drafted)

    def learn(self, difference: float) -> None:
        """Updates the mean with one comparison."""
        self.mean = self.mean if self.num else self.prior
        self.num = min(self.num + 1.0, MEMORY)
        largest = LARGEST_STEP * math.sqrt(self.variance)
        step = max(-largest, min(difference - self.mean, largest))
        self.mean += step / self.num
        self.variance += (step * step - self.variance) / min(self.num + FIRST_WEIGHT, MEMORY)

    @property
    def most(self) -> float:
        """Upper bound on the mean: without draft models the texts would lack the accepted tokens of these at most."""
        return math.log(self.num_tokens / (self.num_tokens - self.num_drafted))

    @property
    def may_pay(self) -> bool:
        """True unless the accepted tokens of draft models are too few for any gain."""
        return self.most > LEAST_GAIN

    @property
    def expected(self) -> float:
        """The mean, with the prior, or what is possible."""
        return min(self.most, (self.num * self.mean + self.prior_num * self.prior) / (self.num + self.prior_num))

    @property
    def permits(self) -> bool:
        """True if drafting is the better mode."""
        return self.expected > LEAST_GAIN

    @property
    def share(self) -> float:
        """Share of the time for the other mode: the probability that it is the better one."""
        if not self.may_pay:
            return LEAST_SHARE
        errors = abs(self.expected - LEAST_GAIN) / math.sqrt(self.variance / (self.num + self.prior_num))
        most = MOST_RESTING if self.permits else MOST_DRAFTING
        return min(most, max(LEAST_SHARE, 0.5 * math.erfc(errors / math.sqrt(2.0))))


@dataclass
class Trial:
    """Paces of a comparison that is not over."""

    before: float | None = None  # of the previous stretch in the better mode
    tried: float | None = None  # of the stretch in the other mode since then


@dataclass
class DraftModelSwitch:
    """Decides whether draft models may draft until the next round, from every finished round."""

    compares: bool  # models of draft nodes may cost the verify node time, as on its own machine
    plain_s: Callable[[int], float]  # expected seconds of a round without drafts, by its number of sessions
    drafts_first: bool = False  # they are expected to pay at any load
    are_near: bool = True  # on this machine: drafts of the other mode are gone after a few rounds
    has_own: bool = False  # the verify node has a draft model, too, which is always compared
    permits: bool = True  # the mode
    _since: float = 0.0  # end of the previous round, or of an idle time since then
    _least: int = 0  # least number of sessions at the current load; the load ends at twice as many
    _is_random: bool = False  # most texts are drawn at random
    _by_load: dict[tuple[int, bool], Comparison] = field(default_factory=dict)
    _owed_s: dict[bool, float] = field(default_factory=lambda: {False: 0.0, True: 0.0})  # to either mode, at any load
    _stretch: Stretch = field(default_factory=Stretch)
    _trials: dict[bool, Trial] = field(default_factory=lambda: {False: Trial(), True: Trial()})  # by kind of texts

    @property
    def is_trying(self) -> bool:
        """True in a stretch in the other mode."""
        known = self._by_load.get(self._load)
        return known is not None and self.permits != known.permits

    @property
    def nodes_may_draft(self) -> bool:
        return self.permits or not self.compares

    @property
    def own_may_draft(self) -> bool:
        return self.has_own and self.permits

    @property
    def _load(self) -> tuple[int, bool]:
        return self._least, self._is_random

    def weigh_work(self, work_s: float, round_s: float, num_sessions: int) -> None:
        """Compares draft models on other machines while the verify node's own work takes much of the time.

        work_s, round_s: seconds of that work, and of the rest of the round.
        """
        compared, share = self.compares, LITTLE_WORK if self.compares else MUCH_WORK
        self.compares = num_sessions >= MANY_ELSEWHERE and work_s > share * (work_s + round_s)
        if compared and not self.compares:
            self._trials = {False: Trial(), True: Trial()}
            known = self._by_load.get(self._load)
            self._begin(permits=known is None or known.permits or not self.has_own)

    def begin(self, now: float) -> None:
        """Ends an idle time, which does not count."""
        self._since = now

    def finished(
        self,
        moved: Sequence[Moved],
        sessions: Sequence[Session],
        now: float,
        alone_s: float,
        num_sessions: int,
        *,
        own_rests: bool = False,
    ) -> None:
        """Updates the comparison after a finished round. sessions: those that decode. alone_s: seconds of the round
        without its drafted tokens, by the profile: prefill and the number of sessions change from round to round.
        num_sessions: the load: those that decode, or all of the round if these are more, since drafts slow the prompts
        that it reads, too. own_rests: the verify node's own model may not draft, in either mode.

        Clients count by their weights, and each by the mean of its sessions. They do not count by U'(X) as in the
        policy, which falls as the better mode's goodput rises, until both modes look alike.
        """
        seconds, self._since = now - self._since, now
        has_own = self.has_own and not own_rests
        compared = [one for one in sessions if (self.compares and one.uses_model) or (has_own and one.allows_own)]
        if not compared:
            return
        known = self._turn_to(num_sessions, sum(one.draws_at_random for one in compared) / len(compared))
        self._owed_s[not known.permits] += known.share * seconds - (seconds if self.is_trying else 0.0)
        num_moved = Counter(id(move.session.client) for move in moved)
        weights = [move.session.client.weight / num_moved[id(move.session.client)] for move in moved]
        weight, tokens = sum(weights), sum(map(mul, (len(move.taken) for move in moved), weights))
        are_far = self.compares and not self.are_near
        settling_s = median(one.client.answer_s for one in compared) if are_far else 0.0
        drafted = sum(map(mul, (move.num_accepted if move.entry.source in MODELS else 0 for move in moved), weights))
        each, each_drafted = (tokens / weight, drafted / weight) if weight else (1.0, 0.0)  # of a session
        self._stretch.observe(alone_s * each, seconds, settling_s, len(moved) * each, len(moved) * each_drafted)
        if self._stretch.is_over or (
            self.permits and self._stretch.is_half and not known.counting(self._stretch).may_pay
        ):
            self._end_stretch(known)

    def _give_up_trial(self) -> None:
        """Returns to the better mode without a result."""
        self._trials[self._is_random] = Trial()
        self._begin(permits=self._by_load[self._load].permits)

    def _turn_to(self, num_sessions: int, share_random: float) -> Comparison:
        """Returns the comparison at this load. A stretch in the better mode goes on if that is the better here, too,
        but not where texts are drawn otherwise: then their paces differ."""
        is_random = share_random > (FEW_RANDOM if self._is_random else 1.0 - FEW_RANDOM)
        fits = self._least / SLACK <= num_sessions < 2 * self._least
        least = self._least if fits else 1 << (num_sessions.bit_length() - 1)
        if (least, is_random) != self._load or self._load not in self._by_load:
            was_trying, is_same_kind = self.is_trying, is_random == self._is_random
            if was_trying and not is_same_kind:
                self._give_up_trial()
            self._least, self._is_random = least, is_random
            known = self._by_load.get(self._load)
            if known is None or not known.num:
                counted = {} if known is None else {"num_tokens": known.num_tokens, "num_drafted": known.num_drafted}
                known = self._by_load[self._load] = replace(self._expect(least), **counted)
            if not is_same_kind:
                self._begin(permits=known.permits)
            elif self.is_trying != was_trying:
                self._give_up_trial()
        return self._by_load[self._load]

    def _expect(self, least: int) -> Comparison:
        """Returns the comparison at a load without any. Draft models pay the less the more sessions there are: if they
        pay at a larger load, they are expected to pay here, too, and if they do not at a smaller one, not here."""
        found = [(load, one) for (load, kind), one in self._by_load.items() if kind == self._is_random and one.num]
        lent = [(load, one) for load, one in found if one.permits == (load > least)]
        if lent:
            _, one = min(lent, key=lambda pair: abs(pair[0] - least))
            return Comparison(one.expected, min(BORROWED, one.num), variance=one.variance)
        is_light = least < MANY or self.plain_s(least) >= LEAST_TOKEN_S * least
        pays = self.drafts_first or not self.are_near or is_light
        return Comparison(EXPECTED) if pays else Comparison(-EXPECTED, prior_num=DOUBT)

    def _begin(self, *, permits: bool) -> None:
        self.permits, self._stretch = permits, Stretch()

    def _end_stretch(self, comparison: Comparison) -> None:
        was_permitted = comparison.permits
        if self.permits:
            comparison = self._by_load[self._load] = comparison.counting(self._stretch)
        # The better mode changed, so that the stretches are no pair, or this one ended early.
        if comparison.permits != was_permitted or not self._stretch.is_over:
            self._give_up_trial()
            return
        pace, stretch_s, trial = self._stretch.pace, self._stretch.seconds, self._trials[self._is_random]
        if self.permits != comparison.permits:
            trial.tried = pace
            self._begin(permits=comparison.permits)
            return
        if pace and trial.before and trial.tried:
            gain_of_other = math.log(trial.tried / math.sqrt(trial.before * pace))
            comparison.learn(-gain_of_other if was_permitted else gain_of_other)
        is_same = comparison.permits == was_permitted
        trial = self._trials[self._is_random] = Trial(pace if is_same else None)
        tries = trial.before is not None and self._owed_s[not comparison.permits] >= comparison.share * stretch_s
        self._begin(permits=not comparison.permits if tries else comparison.permits)
