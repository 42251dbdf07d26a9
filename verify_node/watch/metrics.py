"""The verify node's metrics (listed in `docs/METRICS.md`), read from the daemon's counters at each scrape.

Retains the name stems that vLLM's dashboards expect. Changes nothing, and runs outside of rounds.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import get_args

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from goodspeed.drafting.sources import OWN, by_source
from goodspeed.serving.measuring import metrics
from goodspeed.serving.measuring.metrics import counter, counters, counters_by, gauge, gauges, histogram
from goodspeed.slo.objectives import OTHER
from goodspeed.wire.channels import VerifyChannel
from goodspeed.wire.fields import DraftSource, RedirectReason
from goodspeed.wire.messages import RefusalCode
from verify_node.core.core import VerifyCore
from verify_node.core.counts import PromiseOutcome
from verify_node.session.deadline import Cause
from verify_node.watch.present_clients import Present, log_utility, present_clients, shown

Of = Callable[[Present], float]
CLIENT_GAUGES: tuple[tuple[str, str, Of], ...] = (
    ("client_sessions", "Open sessions.", lambda one: len(one.sessions)),
    ("client_may_draft", "Tokens that it may draft beyond its texts together.", lambda one: one.may_draft),
    ("client_acceptance_rate", "Estimated acceptance rate, Eq. (3).", lambda one: one.client.acceptance.value),
    ("client_goodput", "Estimated tokens per round, Eq. (4).", lambda one: one.client.goodput.value),
    ("client_weight", "Weight in the utility.", lambda one: one.client.weight),
    ("client_log_utility", "Weight times the logarithm of the goodput.", lambda one: one.log_utility),
    (
        "client_draft_seconds_per_token",
        "Time of its draft model per token, smoothed.",
        lambda one: one.client.draft_s_per_token,
    ),
    ("client_round_trip_seconds", "From a verdict to the answer, smoothed.", lambda one: one.client.round_trip_s),
)
CLIENT_COUNTERS: tuple[tuple[str, str, Of], ...] = (
    ("client_generation_tokens", "Tokens delivered.", lambda one: one.client.num_tokens),
    ("client_draft_tokens", "Drafted tokens verified.", lambda one: one.client.num_drafted),
    ("client_accepted_tokens", "Drafted tokens accepted.", lambda one: one.client.num_accepted),
    ("client_uplink_bytes", "Bytes of messages from it.", lambda one: one.client.uplink_bytes),
    ("client_downlink_bytes", "Bytes of messages to it.", lambda one: one.client.downlink_bytes),
)


class VerifyCollector(Collector):
    """All metrics of a verify node; must be collected in its event loop."""

    def __init__(self, core: VerifyCore, channel: VerifyChannel) -> None:
        self._core = core
        self._channel = channel

    def collect(self) -> Iterator[Metric]:
        yield metrics.build_info("verify", self._core.welcome.target)
        yield metrics.target_info(self._core.welcome)
        yield from self._sessions()
        yield from self._tokens()
        yield from self._rounds()
        yield from self._slos()
        yield from self._wire()
        yield from self._clients()
        yield from self._fleet()

    def _sessions(self) -> Iterator[Metric]:
        core = self._core
        unfinished = sum(not session.finished for session in core.sessions.values())
        running = core.rounds.num_running
        yield gauge("num_requests_running", "Unfinished sessions that take part in the newest round.", running)
        yield gauge("num_requests_waiting", "All other unfinished sessions.", unfinished - running)
        yield metrics.kv_cache_usage(core.pool)
        yield counter("num_preemptions", "Sessions that lost their memory to others.", core.counts.num_preempted)

    def _tokens(self) -> Iterator[Metric]:
        counts = self._core.counts
        by_position = {str(number): drafts for number, drafts in enumerate(counts.accepted_by_position())}
        yield counter("prompt_tokens", "Prompt tokens of sessions that got a first token.", counts.num_prompt_tokens)
        yield counter("generation_tokens", "Tokens delivered.", counts.num_tokens)
        yield from metrics.prefix_cache(counts.num_looked_up, counts.num_found)
        yield from metrics.speculation(counts.num_drafts, counts.num_drafted, counts.num_accepted)
        what = "Drafts whose token at this position was accepted."
        yield counters("spec_decode_num_accepted_tokens_per_pos", what, "position", by_position)
        drafted, accepted = by_source(counts.drafted_by), by_source(counts.accepted_by)
        yield counters("draft_tokens_by_source", "Drafted tokens verified, by what drafted them.", "source", drafted)
        yield counters("accepted_tokens_by_source", "Drafted tokens accepted.", "source", accepted)
        rejected = counts.num_alternatives - counts.num_alternatives_accepted
        fates = {"accepted": counts.num_alternatives_accepted, "rejected": rejected}
        yield counters("alternative_tokens", "Tokens of trees verified beside their first choices.", "fate", fates)
        yield histogram("iteration_tokens_total", "Tokens fed to the target per round.", counts.round_tokens)

    def _rounds(self) -> Iterator[Metric]:
        core, counts = self._core, self._core.counts
        yield counter("rounds", "Rounds begun.", core.rounds.num_rounds)
        yield counter(
            "rounds_failed", "Rounds that failed, in planning, in the forward pass or at their end.", counts.num_failed
        )
        yield counters("round_seconds", "Time of rounds by phase.", "phase", vars(counts.wall))
        yield histogram("round_duration_seconds", "Forward pass and verification of one round.", counts.round_s)
        yield gauge("budget", "Drafted tokens in one round at most.", core.limits.budget)
        models = core.rounds.model_switch
        yield gauge("models_may_draft", "1 while draft models may draft.", float(models.nodes_may_draft))
        yield gauge(
            "own_model_may_draft", "1 while this node's own draft model may draft.", float(models.own_may_draft)
        )
        yield counter("own_model_passes", "Forward passes of that model.", counts.num_own_passes)
        yield counter("own_model_seconds", "Time in which that model drafted.", counts.own_s)
        yield counter("own_model_draft_tokens", "Its drafted tokens verified.", counts.drafted_by[OWN])
        yield counter("own_model_accepted_tokens", "Its drafted tokens accepted.", counts.accepted_by[OWN])

    def _slos(self) -> Iterator[Metric]:
        """SLO metrics by tier, as measured at this node; draft nodes report the times that readers saw."""
        core, counts, causes = self._core, self._core.counts, get_args(Cause)
        tiers = [*core.register.tiers, OTHER]
        attained = {tier: counts.num_attained[tier] for tier in tiers}
        yield counters("slo_attained", "Complete texts that were in time here.", "tier", attained)
        what = "Complete texts that were late here, by what took most of their time."
        yield counters_by("slo_violations", what, ("tier", "cause"), counts.violations, tiers, causes)
        now = time.monotonic()
        unfinished = [one.deadline for one in core.sessions.values() if one.deadline is not None and not one.finished]
        behind = Counter(deadline.slo.tier or OTHER for deadline in unfinished if deadline.is_behind(now))
        yield gauges(
            "slo_behind", "Unfinished texts that are behind now.", "tier", {tier: behind[tier] for tier in tiers}
        )
        what = "Texts that requested a promise, by outcome."
        yield counters_by("slo_promises", what, ("tier", "outcome"), counts.promises, tiers, get_args(PromiseOutcome))
        what = "Promised texts that were late, by what took most of their time."
        yield counters_by("slo_broken_promises", what, ("tier", "cause"), counts.broken, tiers, causes)
        yield gauge("slo_promised", "Open texts whose service level is promised.", len(core.promises.promised))
        yield gauge("slo_promised_pages", "Pages that are reserved for them.", core.promises.num_pages)

    def _fleet(self) -> Iterator[Metric]:
        sent_on = {reason: self._core.counts.redirects[reason] for reason in get_args(RedirectReason)}
        yield counters("redirects", "Sessions redirected to another replica.", "reason", sent_on)

    def _wire(self) -> Iterator[Metric]:
        core, traffic = self._core, self._channel.traffic
        refusals = dict.fromkeys(get_args(RefusalCode), 0) | dict(core.replies.refusals)
        yield gauge("peers_connected", "Draft processes connected.", len(core.peers))
        yield counter("messages_received", "Messages received, malformed and ignored ones too.", traffic.num_received)
        yield counter("uplink_bytes", "Bytes of messages received.", traffic.bytes_received)
        yield counter("downlink_bytes", "Bytes of messages sent.", traffic.bytes_sent)
        yield counter("verdicts_repeated", "Verdicts repeated after a repeated message.", core.counts.num_repeated)
        yield counters("refusals", "Messages refused.", "reason", refusals)
        yield counter("refusals_unanswered", "Refusals that were counted but not sent.", core.replies.num_unanswered)
        ignored = traffic.num_unheard + core.replies.num_ignored
        yield counter("messages_ignored", "Messages of barred peers, dropped unread.", ignored)
        yield counter("connections_cut", "Connections that this node ended.", self._channel.transport.num_cut)
        yield gauge("peers_barred", "Peers, or keys, that are barred now.", len(core.rate_limiter.barred))
        undelivered = {"busy": traffic.num_busy, "gone": traffic.num_gone}
        yield counters("messages_undelivered", "Messages that could not be sent.", "reason", undelivered)

    def _clients(self) -> Iterator[Metric]:
        present = present_clients(self._core)
        yield gauge("clients", "Clients that are connected or have open sessions.", len(present))
        yield gauge("log_utility", "Sum over the clients that generate.", log_utility(present))
        clients = shown(present)
        for name, what, of in CLIENT_GAUGES:
            yield gauges(name, what, "client", {one.client.name: of(one) for one in clients})
        for name, what, of in CLIENT_COUNTERS:
            yield counters(name, what, "client", {one.client.name: of(one) for one in clients})
        names = [one.client.name for one in clients]
        for name, what, by_client in (
            ("draft", "Drafted tokens verified.", [one.client.num_drafted_by for one in clients]),
            ("accepted", "Drafted tokens accepted.", [one.client.num_accepted_by for one in clients]),
        ):
            found = Counter(
                {(of, by): n for of, each in zip(names, by_client, strict=True) for by, n in by_source(each).items()}
            )
            labels = ("client", "source")
            yield counters_by(f"client_{name}_tokens_by_source", what, labels, found, names, get_args(DraftSource))
