"""State of a draft node's nodes, as requests need it: readiness, context, defaults, ends of a text, service levels."""

import time
from collections.abc import Sequence

from draft_node.core.link import VerifyLink
from draft_node.daemon import DraftDaemon
from draft_node.service.request import Target
from goodspeed.engine.tokenizing.vocabulary import Vocabulary
from goodspeed.errors import RequestRefused, VerifyAway
from goodspeed.serving import defaults
from goodspeed.serving.options import NO_MODEL
from goodspeed.slo.objectives import DEFAULT_TIER, LONGEST_S, Objectives
from goodspeed.wire.fields import MAX_STOP_IDS
from goodspeed.wire.handshake import Defaults

MENDING_S = 5.0
"""If the verify node was there less than this long ago, new texts wait for it instead of being refused: a broken
connection is made anew in a tenth of a second nearby, and in five seconds where the other side is a second away."""


class NodeState:
    """Looks at the daemon and the vocabulary whenever it is asked."""

    def __init__(self, daemon: DraftDaemon, vocabulary: Vocabulary) -> None:
        self.draining = False
        self._daemon = daemon
        self._vocabulary = vocabulary
        self._longest_token = max(map(len, vocabulary.tokenizer.get_vocab()), default=1)  # characters

    @property
    def is_ready(self) -> bool:
        """True if a new text can begin at once, provided that a place is free."""
        return (self._daemon.link.connected or self.is_local) and not self.draining

    @property
    def is_within_reach(self) -> bool:
        """True if the verify node is there, or was a moment ago."""
        away_s = self._daemon.away_s(time.monotonic())
        return self._daemon.link.welcome is not None and away_s <= min(MENDING_S, self._daemon.connect_timeout_s)

    @property
    def is_local(self) -> bool:
        """True if the draft model writes alone now, since the verify node is away."""
        return self._daemon.is_local

    @property
    def absence(self) -> str:
        """The sentence for users while the verify node is out of reach."""
        return f"{self._daemon.link.absence(time.monotonic())}; ask again later"

    @property
    def context_len(self) -> int:
        """Prompt and generated tokens together; 0 while the verify node is out of reach: it is the target's.

        While the draft model writes alone, it is the smaller one of both.
        """
        welcome = self._daemon.link.welcome
        if self.is_local:
            local = self._daemon.core.context_len
            return local if welcome is None else min(local, welcome.context_len)
        return welcome.context_len if welcome is not None and self.is_within_reach else 0

    @property
    def target(self) -> Target:
        """The target that writes texts now."""
        welcome = self._daemon.link.welcome
        if welcome is None or not self.is_within_reach:
            return Target()
        return Target(welcome.target, welcome.target_fingerprint)

    @property
    def draft_fingerprint(self) -> str:
        return self._vocabulary.model_fingerprint

    @property
    def draft_model(self) -> str:
        """The draft model's name, as others may see it."""
        return self._daemon.link.hello.draft_model or NO_MODEL

    @property
    def max_chars(self) -> int:
        """The most characters that can fit into the context: its tokens times the longest token.

        While the verify node is away: the target's last known context, or the draft model's if none is known.
        """
        welcome = self._daemon.link.welcome
        known = welcome.context_len if welcome is not None else self._daemon.core.context_len
        return (self.context_len or known) * self._longest_token

    @property
    def vocab_size(self) -> int:
        """Token ids below it mean something."""
        return self._vocabulary.num_tokens

    @property
    def num_running(self) -> int:
        return self._daemon.num_running

    @property
    def num_waiting(self) -> int:
        return self._daemon.num_waiting

    # -- as the target says ----------------------------------------------------------------------------------------

    @property
    def levels(self) -> "Levels":
        """The service levels that a text may ask for."""
        return Levels(self._daemon.link)

    def defaults(self, *, chat: bool) -> Defaults:
        """Sampling defaults and stop strings for requests that leave them out."""
        return defaults.known(self._daemon.link.welcome, self._vocabulary.settings, chat=chat)

    @property
    def target_fingerprint(self) -> str | None:
        """The fingerprint of the target that was seen last; None before there was one."""
        welcome = self._daemon.link.welcome
        return None if welcome is None else welcome.target_fingerprint

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """Tokens that end each text: the target says which; until it has been seen, the draft model has to."""
        welcome = self._daemon.link.welcome
        return tuple(welcome.eos_ids if welcome is not None else self._vocabulary.eos_ids)

    def stop_ids(self, stop_token_ids: Sequence[int], *, ignore_eos: bool) -> tuple[int, ...]:
        """All tokens that end a text: its own, and the target's unless it ignores these; RequestRefused if too many.

        So many are only where another target came while the text waited for its turn.
        """
        found = tuple(dict.fromkeys((*(() if ignore_eos else self.eos_ids), *stop_token_ids)))
        if len(found) > MAX_STOP_IDS:
            what = f"{len(found)} tokens would end the text, the target's own included; {MAX_STOP_IDS} are the most"
            raise RequestRefused("malformed", f"{what}: send fewer stop_token_ids")
        return found


CODE = "slo"
"""Code of the refusal of a level."""


class Levels:
    """Service levels that may be asked for now; none are known before the verify node has said Welcome."""

    def __init__(self, link: VerifyLink) -> None:
        self._link = link

    @property
    def tiers(self) -> dict[str, Objectives]:
        """The verify node's tiers by name."""
        welcome = self._link.welcome
        return {tier.tier: tier for tier in welcome.slo.tiers if tier.tier} if welcome is not None else {}

    @property
    def default(self) -> Objectives | None:
        """The level of a text that asks for none: the tier called default, if there is one, as the key allows it."""
        tier = self.tiers.get(DEFAULT_TIER)
        return None if tier is None else tier.at_least(self._least_tpot_s or 0.0)

    def tier(self, name: str) -> Objectives:
        """The tier of that name; RequestRefused with those that there are, or VerifyAway if these are not known yet."""
        tiers = self.tiers
        if name not in tiers and self._link.welcome is None:
            what = "the verify node, which may have the tier, has not been reached yet; ask again later"
            raise VerifyAway("verify_away", what)
        if name not in tiers:
            known = f"choose one of: {', '.join(sorted(tiers))}" if tiers else "there are none here; leave it out"
            raise RequestRefused(CODE, f"there is no tier {name[:80]!a}; {known}")
        return self.allowed(tiers[name])

    def allowed(self, slo: Objectives) -> Objectives:
        """The same objectives; RequestRefused if this node's key may not ask for so short a TPOT."""
        least_s = self._least_tpot_s
        if least_s is not None and slo.tpot_s is not None and slo.tpot_s < least_s:
            what = f"a TPOT of {1000 * slo.tpot_s:g} ms is shorter than this draft node's key allows"
            instead = "leave it out" if least_s >= LONGEST_S else f"ask for at least {1000 * least_s:g} ms"
            raise RequestRefused(CODE, f"{what}; {instead}")
        return slo

    @property
    def _least_tpot_s(self) -> float | None:
        """The shortest TPOT that this node's key allows; None: any."""
        welcome = self._link.welcome
        return welcome.slo.least_tpot_s if welcome is not None else None
