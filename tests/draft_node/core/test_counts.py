"""The draft node sums up statistics of its sessions, by draft source."""

import json

from draft_node.core.actions import Statistics
from draft_node.core.counts import total
from goodspeed.drafting.sources import by_source


def test_tokens_by_what_drafted_them_add_up_too():
    one, two = Statistics(), Statistics()
    one.drafted.update(model=2, ngram=1)
    two.drafted.update(ngram=4)
    added = total(one, two)
    assert by_source(added.drafted) == {"model": 2, "ngram": 5, "self": 0}
    assert by_source(added.accepted) == {"model": 0, "ngram": 0, "self": 0}
    assert one.drafted == {"model": 2, "ngram": 1}, "a sum changes nothing that it adds"


def test_counts_are_json_by_name_and_source() -> None:
    statistics = Statistics(num_drafted=2)
    statistics.drafted["ngram"] = 2
    told = json.loads(json.dumps(statistics.by_name()))
    assert told["num_drafted"] == 2
    assert told["drafted"] == {"model": 0, "ngram": 2, "self": 0}
