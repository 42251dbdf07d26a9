"""Prometheus metrics: builds metric families from plain numbers, and the text of `/metrics` from the families.

Collectors read the daemons' own counters at each scrape, in the daemon's event loop, so that no number changes
meanwhile.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from goodspeed import __version__
from goodspeed.serving.measuring.counts import Histogram, ResponseCounts
from goodspeed.wire.handshake import Welcome

if TYPE_CHECKING:  # it imports numpy, and a draft node without a model has no pool
    from goodspeed.engine.paged.pages import PagePool

Registry: TypeAlias = CollectorRegistry
Family = TypeVar("Family", CounterMetricFamily, GaugeMetricFamily)

PREFIX = "goodspeed_"


def create_registry(collector: Collector) -> Registry:
    """Creates the registry of a node's metrics and, on Linux, of its process's metrics."""
    registry = Registry()
    registry.register(collector)
    ProcessCollector(registry=registry)
    return registry


def exposition(registry: Registry) -> tuple[bytes, str]:
    """Returns the body and the content type of `/metrics`."""
    return generate_latest(registry), CONTENT_TYPE_PLAIN_0_0_4


def responses(counted: ResponseCounts) -> CounterMetricFamily:
    """Returns the counter of HTTP responses by route and status."""
    family = CounterMetricFamily(PREFIX + "http_requests", "Answers over HTTP.", labels=["route", "status"])
    for (route, status), number in counted.items():
        family.add_metric([route, str(status)], number)
    return family


def counter(name: str, what: str, value: float) -> CounterMetricFamily:
    """Returns a counter; Prometheus appends `_total` to the name."""
    return CounterMetricFamily(PREFIX + name, what, value=value)


def counters(name: str, what: str, label: str, values: Mapping[Any, float]) -> CounterMetricFamily:
    """Returns a counter with one sample per label value."""
    return _fill(CounterMetricFamily(PREFIX + name, what, labels=[label]), values)


def counters_by(
    name: str, what: str, labels: Sequence[str], counted: Counter[Any], *values: Iterable[str]
) -> CounterMetricFamily:
    """Returns a counter with one sample, maybe 0, per combination of label values. values: those of each label."""
    family = CounterMetricFamily(PREFIX + name, what, labels=labels)
    for names in product(*values):
        family.add_metric(names, counted[names])
    return family


def gauge(name: str, what: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(PREFIX + name, what, value=value)


def gauges(name: str, what: str, label: str, values: Mapping[Any, float]) -> GaugeMetricFamily:
    """Returns a gauge with one sample per label value."""
    return _fill(GaugeMetricFamily(PREFIX + name, what, labels=[label]), values)


def _fill(family: Family, values: Mapping[Any, float]) -> Family:
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def kv_cache_usage(pool: "PagePool") -> GaugeMetricFamily:
    return gauge("kv_cache_usage_perc", "Share of the pages in use, 0 to 1.", 1 - pool.num_free / pool.num_pages)


def prefix_cache(num_queries: int, num_hits: int) -> Iterator[CounterMetricFamily]:
    yield counter("prefix_cache_queries", "Tokens of texts that were looked up when they were admitted.", num_queries)
    yield counter("prefix_cache_hits", "Of these, tokens whose keys and values were cached.", num_hits)


def speculation(num_drafts: int, num_drafted: int, num_accepted: int) -> Iterator[CounterMetricFamily]:
    """Yields the counters of speculation. num_drafts: non-empty drafts; num_drafted, num_accepted: in tokens."""
    yield counter("spec_decode_num_drafts", "Drafts verified.", num_drafts)
    yield counter("spec_decode_num_draft_tokens", "Drafted tokens verified.", num_drafted)
    yield counter("spec_decode_num_accepted_tokens", "Drafted tokens accepted.", num_accepted)


def histogram(name: str, what: str, values: Histogram) -> HistogramMetricFamily:
    names = [*(str(float(bound)) for bound in values.bounds), "+Inf"]
    buckets = list(zip(names, values.up_to(), strict=True))
    return HistogramMetricFamily(PREFIX + name, what, buckets=buckets, sum_value=values.total)


def target_info(welcome: Welcome | None) -> GaugeMetricFamily:
    """Returns an info metric, always 1, labelled with the target model; no sample before a Welcome."""
    family = GaugeMetricFamily(PREFIX + "target_info", "The target model.", labels=["target", "fingerprint"])
    if welcome is not None:
        family.add_metric([welcome.target, welcome.target_fingerprint], 1)
    return family


def build_info(node: str, model: str) -> GaugeMetricFamily:
    """Returns an info metric, always 1, labelled with the node's kind, release and model."""
    family = GaugeMetricFamily(PREFIX + "build_info", "Release and model.", labels=["node", "version", "model"])
    family.add_metric([node, __version__, model], 1)
    return family
