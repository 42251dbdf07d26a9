"""The histogram: bounds belong to the values below them, and nothing is lost beyond the last."""

import math

import pytest
from prometheus_client.parser import text_string_to_metric_families

from goodspeed.serving.measuring.counts import Histogram, ResponseCounts
from goodspeed.serving.measuring.metrics import PREFIX, create_registry, exposition, histogram, responses


def test_values_are_counted_up_to_their_bounds():
    values = Histogram((1, 2.5))
    for value in (0.5, 1.0, 1.001, 2.5, 9.0):
        values.observe(value)
    assert values.up_to() == [2, 4, 5]
    assert values.num_values == 5
    assert values.total == pytest.approx(14.001)
    assert Histogram((1,)).up_to() == [0, 0]


class OneHistogram:
    def collect(self):
        values = Histogram((1, 2.5))
        for value in (0.5, 1.0, 7.0):
            values.observe(value)
        yield histogram("thing_seconds", "Of things.", values)


def test_the_text_reads_back():
    text, content_type = exposition(create_registry(OneHistogram()))
    assert content_type.startswith("text/plain; version=0.0.4")
    families = {family.name: family for family in text_string_to_metric_families(text.decode())}
    thing = families[PREFIX + "thing_seconds"]
    assert thing.type == "histogram"
    buckets = {float(sample.labels["le"]): sample.value for sample in thing.samples if "le" in sample.labels}
    assert buckets == {1.0: 2, 2.5: 2, math.inf: 3}
    assert {sample.name.rpartition("_")[2]: sample.value for sample in thing.samples[3:]} == {"count": 3, "sum": 8.5}
    assert "process_cpu_seconds" in families


def test_answers_are_told_by_route_and_status():
    answered = ResponseCounts({("/metrics", 200): 1, ("other", 404): 2})
    told = {tuple(sample.labels.values()): sample.value for sample in responses(answered).samples}
    assert told == {("/metrics", "200"): 1, ("other", "404"): 2}
