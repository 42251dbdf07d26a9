"""A real draft node beside a thousand connections of strangers that hold what they can: of two of the kinds that
`tests/serving/web/test_attacks.py` tries on the server alone."""

import statistics
import time
from collections.abc import Iterator

import httpx2
import pytest

from tests.nodes import DraftNode
from tests.serving.web.attackers import attacking
from tests.serving.web.test_attacks import AT_MOST_S, NUM_ATTACKERS, WITHIN_S
from tests.together.http.conftest import draft_node

pytestmark = pytest.mark.alone

KEY = {"Authorization": "Bearer users-key"}


@pytest.fixture(scope="module")
def node(endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DraftNode]:
    keys = tmp_path_factory.mktemp("attacked") / "keys"
    keys.write_text("users-key\n")
    with draft_node(endpoint, "--api-key", str(keys)) as (node, _):
        yield node


@pytest.mark.parametrize("kind", ["models", "incomplete"])
def test_users_are_served_beside_strangers(kind: str, node: DraftNode) -> None:
    with attacking(kind, int(node.url.rpartition(":")[2]), NUM_ATTACKERS):
        httpx2.get(f"{node.url}/health", timeout=30)  # behind all that came at once
        waits_s = []
        for path in ("/health", "/v1/models") * 5:
            started = time.monotonic()
            assert httpx2.get(f"{node.url}{path}", headers=KEY, timeout=AT_MOST_S).status_code == 200
            waits_s.append(time.monotonic() - started)
        assert statistics.median(waits_s) < WITHIN_S
        body = {"prompt": "The river", "max_tokens": 2}
        assert httpx2.post(f"{node.url}/v1/completions", json=body, headers=KEY, timeout=30).status_code == 200
