"""The state of draft node and verify node that requests need: readiness, context, defaults, stop tokens, SLOs."""

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
from goodspeed.wire.fields import MAX_CONTEXT, MAX_STOP_IDS
from goodspeed.wire.handshake import Defaults

MENDING_S = 5.0
"""Shorter absences of the verify node make new texts wait instead of refusing them: reconnecting takes a tenth of a
second nearby, and five seconds over a link with a delay of one second."""


class NodeState:
    """Reads the present state of daemon and vocabulary."""

    def __init__(self, daemon: DraftDaemon, vocabulary: Vocabulary) -> None:
        self.draining = False
        self._daemon = daemon
        self._vocabulary = vocabulary
        self._longest_token = max(map(len, vocabulary.tokenizer.get_vocab()), default=1)  # characters

    @property
    def is_ready(self) -> bool:
        """True if a new text can begin at once, provided that a slot is free."""
        return self._daemon.link.connected and not self.draining

    @property
    def is_within_reach(self) -> bool:
        """True if the verify node is connected, or was a moment ago."""
        away_s = self._daemon.core.away_s(time.monotonic())
        return self._daemon.link.welcome is not None and away_s <= min(MENDING_S, self._daemon.core.connect_timeout_s)

    @property
    def absence(self) -> str:
        """The error message for users while the verify node is out of reach."""
        return f"{self._daemon.link.absence(time.monotonic())}; ask again later"

    @property
    def context_len(self) -> int:
        """The target's context length: most tokens of prompt and output together; 0 while the verify node is out of
        reach."""
        welcome = self._daemon.link.welcome
        return welcome.context_len if welcome is not None and self.is_within_reach else 0

    @property
    def target(self) -> Target:
        """The present target; empty while the verify node is out of reach."""
        welcome = self._daemon.link.welcome
        if welcome is None or not self.is_within_reach:
            return Target()
        return Target(welcome.target, welcome.target_fingerprint)

    @property
    def draft_fingerprint(self) -> str:
        return self._vocabulary.model_fingerprint

    @property
    def draft_model(self) -> str:
        """The draft model's public name."""
        return self._daemon.link.hello.draft_model or NO_MODEL

    @property
    def max_chars(self) -> int:
        """Most characters that can fit into the context: its length times the longest token.

        While the verify node is away, the context is the target's latest known one, else the draft model's.
        """
        welcome, drafter = self._daemon.link.welcome, self._daemon.drafter
        own = MAX_CONTEXT if drafter is None else drafter.context_len
        return (own if welcome is None else welcome.context_len) * self._longest_token

    @property
    def vocab_size(self) -> int:
        """Bound of valid token ids: the target's, or this node's until a target has been seen."""
        welcome = self._daemon.link.welcome
        return self._vocabulary.num_tokens if welcome is None else welcome.vocab_size

    @property
    def num_running(self) -> int:
        return self._daemon.num_running

    @property
    def num_waiting(self) -> int:
        return self._daemon.num_waiting

    # -- from the target -------------------------------------------------------------------------------------------

    @property
    def levels(self) -> "Levels":
        """The service levels (SLOs) that a text may request."""
        return Levels(self._daemon.link)

    def defaults(self, *, chat: bool) -> Defaults:
        """Returns sampling defaults and stop strings for requests without their own."""
        return defaults.known(self._daemon.link.welcome, self._vocabulary.settings, chat=chat)

    @property
    def target_name(self) -> str | None:
        """Name of the latest target; None before the first one, and for a target without a name."""
        welcome = self._daemon.link.welcome
        return None if welcome is None else welcome.target or None

    @property
    def target_fingerprint(self) -> str | None:
        """Fingerprint of the latest target; None before the first one."""
        welcome = self._daemon.link.welcome
        return None if welcome is None else welcome.target_fingerprint

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """EOS tokens: the target's, or the draft model's until a target has been seen."""
        welcome = self._daemon.link.welcome
        return tuple(welcome.eos_ids if welcome is not None else self._vocabulary.eos_ids)

    def stop_ids(self, stop_token_ids: Sequence[int], *, ignore_eos: bool) -> tuple[int, ...]:
        """Returns a text's stop tokens: its own, and the target's unless `ignore_eos`; RequestRefused if too many.

        Too many are possible only if the target changed while the text waited in the queue.
        """
        found = tuple(dict.fromkeys((*(() if ignore_eos else self.eos_ids), *stop_token_ids)))
        if len(found) > MAX_STOP_IDS:
            what = f"{len(found)} tokens would end the text, the target's own included; {MAX_STOP_IDS} are the most"
            raise RequestRefused("malformed", f"{what}: send fewer stop_token_ids")
        return found


CODE = "slo"
"""Error code for a refused service level."""


class Levels:
    """Service levels that texts may request now; none are known before the verify node's Welcome."""

    def __init__(self, link: VerifyLink) -> None:
        self._link = link

    @property
    def tiers(self) -> dict[str, Objectives]:
        """The verify node's tiers, by name."""
        welcome = self._link.welcome
        return {tier.tier: tier for tier in welcome.slo.tiers if tier.tier} if welcome is not None else {}

    @property
    def default(self) -> Objectives | None:
        """Level of a text that requests none: the tier named default, if any, with TPOT raised to the key's limit."""
        tier = self.tiers.get(DEFAULT_TIER)
        return None if tier is None else tier.at_least(self._least_tpot_s or 0.0)

    def tier(self, name: str) -> Objectives:
        """Returns a tier by name; RequestRefused with the known tiers if there is none, VerifyAway before Welcome."""
        tiers = self.tiers
        if name not in tiers and self._link.welcome is None:
            what = "the verify node, which may have the tier, has not been reached yet; ask again later"
            raise VerifyAway("verify_away", what)
        if name not in tiers:
            known = f"choose one of: {', '.join(sorted(tiers))}" if tiers else "there are none here; leave it out"
            raise RequestRefused(CODE, f"there is no tier {name[:80]!a}; {known}")
        return self.allowed(tiers[name])

    def allowed(self, slo: Objectives) -> Objectives:
        """Returns `slo`; RequestRefused if its TPOT is shorter than this node's key allows."""
        least_s = self._least_tpot_s
        if least_s is not None and (tpot_s := slo.tightest_tpot_s) is not None and tpot_s < least_s:
            what = f"a TPOT of {1000 * tpot_s:g} ms is shorter than this draft node's key allows"
            instead = "leave it out" if least_s >= LONGEST_S else f"ask for at least {1000 * least_s:g} ms"
            raise RequestRefused(CODE, f"{what}; {instead}")
        return slo

    @property
    def _least_tpot_s(self) -> float | None:
        """Shortest TPOT that this node's key allows, in seconds; None: no limit."""
        welcome = self._link.welcome
        return welcome.slo.least_tpot_s if welcome is not None else None
