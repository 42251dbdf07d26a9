"""Metrics of a draft node, listed in `docs/METRICS.md`. Reads the daemon's numbers at each scrape.

Names match vLLM's where possible, for its dashboards. Read-only, and not on the path of tokens.
"""

from collections.abc import Iterator
from typing import get_args

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from draft_node.core.counts import KNOWN
from draft_node.process.daemon import DraftDaemon
from draft_node.service.request_stats import RequestStats
from draft_node.service.slo_tiers import SloTiers
from goodspeed.drafting.sources import by_source
from goodspeed.engine.model_files.names import NO_MODEL
from goodspeed.serving.measuring import metrics
from goodspeed.serving.measuring.counts import ResponseCounts
from goodspeed.serving.measuring.metrics import counter, counters, counters_by, gauge, histogram
from goodspeed.slo.attainment import Outcome
from goodspeed.slo.objectives import OTHER
from goodspeed.wire.messages import RefusalCode


class DraftCollector(Collector):
    """All metrics of a draft node; collect in its event loop."""

    def __init__(self, daemon: DraftDaemon, texts: RequestStats, answered: ResponseCounts) -> None:
        """texts: of the service."""
        self._daemon = daemon
        self._texts = texts
        self._answered = answered

    def collect(self) -> Iterator[Metric]:
        yield metrics.build_info("draft", self._daemon.link.hello.draft_model or NO_MODEL)
        yield metrics.target_info(self._daemon.link.welcome)
        yield from self._requests()
        yield from self._times()
        yield from self._slos()
        yield from self._tokens()
        yield from self._link()
        yield metrics.responses(self._answered)

    def _requests(self) -> Iterator[Metric]:
        texts, queue = self._texts, self._daemon.core.queue
        ended = {"stop": 0, "length": 0} | texts.finished | {"abort": texts.num_abandoned}
        failures = dict.fromkeys(KNOWN, 0) | texts.failed
        yield gauge("num_requests_running", "Texts that are being written.", queue.num_running)
        yield gauge("num_requests_waiting", "Texts that wait for their turn.", queue.num_waiting)
        drafter = self._daemon.drafter
        if drafter is not None and (caches := drafter.caches) is not None:
            yield metrics.kv_cache_usage(caches.pool)
            yield from metrics.prefix_cache(caches.num_looked_up, caches.num_found)
        yield counters("request_success", "Texts complete, or left by their users.", "finished_reason", ended)
        yield counters("request_failures", "Texts not admitted, or not completed.", "code", failures)

    def _times(self) -> Iterator[Metric]:
        texts = self._texts
        yield histogram("time_to_first_token_seconds", "From request to first token.", texts.first_token_s)
        yield histogram("inter_token_latency_seconds", "Between two pieces of one text.", texts.gap_s)
        yield histogram("time_per_output_token_seconds", "Mean of one text, after its first token.", texts.per_token_s)
        yield histogram("e2e_request_latency_seconds", "From request to end, of complete texts.", texts.whole_s)
        yield histogram("request_prompt_tokens", "Of complete texts.", texts.prompt_tokens)
        yield histogram("request_generation_tokens", "Of complete texts.", texts.tokens)

    def _slos(self) -> Iterator[Metric]:
        """Yields SLO metrics by tier: those of this node and the verify node, and `other` for objectives of no tier."""
        texts = self._texts
        tiers, kinds = sorted({*SloTiers(self._daemon.link).tiers, *texts.slo_tokens, OTHER}), get_args(Outcome)
        tokens = {tier: texts.slo_tokens[tier] for tier in tiers}
        what = "Complete texts with latency objectives, by outcome."
        yield counters_by("slo_requests", what, ("tier", "outcome"), texts.slo_outcomes, tiers, kinds)
        what = "Of these, texts whose service level the verify node promised."
        yield counters_by("slo_promised_requests", what, ("tier", "outcome"), texts.promised, tiers, kinds)
        yield counters("slo_goodput_tokens", "Tokens of texts that attained all of their objectives.", "tier", tokens)

    def _tokens(self) -> Iterator[Metric]:
        texts, statistics = self._texts, self._daemon.core.statistics
        yield counter("prompt_tokens", "Prompt tokens of texts that got a first token.", texts.num_prompt_tokens)
        yield counter("generation_tokens", "Tokens written.", texts.num_tokens)
        yield counter("rounds", "Verdicts applied, over all sessions.", statistics.num_rounds)
        yield from metrics.speculation(statistics.num_drafts, statistics.num_drafted, statistics.num_accepted)
        what = "Drafted tokens verified, by what drafted them."
        yield counters("drafted_tokens", what, "source", by_source(statistics.drafted))
        yield counters("accepted_tokens", "Of these, what was accepted.", "source", by_source(statistics.accepted))
        drafting = self._daemon.drafting
        failures = 0 if drafting is None else drafting.breaker.num_failures
        yield counter("draft_failures", "Steps of the draft model that failed or took too long.", failures)

    def _link(self) -> Iterator[Metric]:
        daemon, traffic = self._daemon, self._daemon.connections.traffic
        refusals = dict.fromkeys(get_args(RefusalCode), 0) | daemon.core.counts.refusals
        yield gauge("connected", "1 while a verify node is there, else 0.", daemon.core.links.is_anybody_there)
        yield gauge("draft_model_resting", "1 while it drafts nothing, else 0.", daemon.core.resting.is_resting)
        yield counter("reconnects", "Handshakes after the first.", max(0, daemon.core.counts.num_connected - 1))
        what = "Sessions that a verify node sent to another."
        yield counter("redirected", what, daemon.core.counts.num_redirected)
        what = "Silences after which a session's last word was repeated."
        yield counter("resends", what, daemon.core.statistics.num_resends)
        yield counters("refusals", "Messages that the verify node refused.", "reason", refusals)
        yield counter("uplink_bytes", "Bytes of messages sent.", traffic.bytes_sent)
        yield counter("downlink_bytes", "Bytes of messages received.", traffic.bytes_received)
