"""A draft node that lies about what its tokens were drawn from: found, told, and verified by match from then on."""

from typing import Any

import numpy as np
import pytest

from draft_node.core.actions import Finish
from goodspeed.exact.positions import HEADER
from tests.together.cluster.cluster import Cluster, make_request, prompt_ids
from tests.together.cluster.test_exactness import check_same

LYING, HONEST, MATCHING = "lying", "honest", "matching"


class WithLiar(Cluster):
    """A cluster with a liar: it claims that its lattice was equally likely, and always sends the likeliest token."""

    def _start(self) -> None:
        super()._start()
        drafter = self.drafts[LYING].drafter
        draw = drafter._draw_from_proposals

        def lie(rows: list[Any], logits: Any) -> None:
            draw(rows, logits)
            for job in [row.job for row in rows]:
                kind, num_entries = HEADER.unpack_from(job.positions[-1])
                ids, weights = np.frombuffer(job.positions[-1], "<u2", offset=HEADER.size).reshape(2, num_entries)
                job.tree.tokens[-1] = int(ids[weights.argmax()])
                flat = np.full_like(weights, 65535)
                job.positions[-1] = HEADER.pack(kind, num_entries) + ids.tobytes() + flat.tobytes()

        drafter._draw_from_proposals = lie


@pytest.mark.thorough
def test_a_liar_is_found_and_goes_on_under_match() -> None:
    """Its later texts are the target's own with their seeds, which is what match means, and so are others'."""
    draft: dict[str, object] = {"model": "tiny-draft-s"}
    cluster = WithLiar({"preset": "paper"}, {LYING: draft | {"max_sessions": 1}, HONEST: draft, MATCHING: draft})
    requests = {
        LYING: [make_request(prompt_ids(i), 32, seed=i, verification="ratio") for i in range(3)],
        HONEST: [make_request(prompt_ids(i), 24, seed=7, verification="ratio") for i in (0, 0, 1)],
        MATCHING: [make_request(prompt_ids(3), 24, seed=3)],
    }
    served = cluster.serve(requests)
    assert all(isinstance(each.end, Finish) for texts in served.values() for each in texts)
    check_same(requests[MATCHING][0], served[MATCHING][0])
    core = cluster.verify.core
    clients = core.allocator.clients
    assert [clients[name].suspicion.proven for name in (LYING, HONEST, MATCHING)] == [True, False, False]
    assert core.replies.refusals == {"proposal": 1}  # told once
    assert sum(each.statistics.num_refusals for each in served[LYING]) == 1
    check_same(requests[LYING][2], served[LYING][2])  # opened when all was known
    assert clients[HONEST].suspicion.num_drafts > 10
    assert clients[MATCHING].suspicion.num_drafts == 0
