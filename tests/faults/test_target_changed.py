"""The verify node is killed and comes back with another target: no text is written by two of them."""

import openai
import pytest
from httpx2 import Client

from goodspeed.app.reference import generate
from goodspeed.engine.tokenizing.text import decode, encode_prompt
from goodspeed.engine.torch import checkpoints
from goodspeed.engine.torch.loading import start
from tests.faults.texts import GREEDY, begin, check, mixed
from tests.nodes import DEADLINE_S, DraftNode, VerifyNode

pytestmark = pytest.mark.nodes

PATIENT = ("--connect-timeout-s", "600")
PROMPT = "def read_lines(path):"
NUM_TOKENS = 300


def fingerprint(draft: DraftNode, client: Client) -> str:
    """The target's fingerprint, as the draft node names it to its users."""
    return str(client.get(f"{draft.url}/v1/models").json()["data"][0]["goodspeed"]["target_fingerprint"])


@pytest.mark.essential
@pytest.mark.parametrize(
    "other",
    [("--model", "tiny-draft-m"), pytest.param(("--dtype", "bfloat16"), marks=pytest.mark.slow_faults)],
    ids=["model", "dtype"],
)
def test_a_verify_node_that_comes_back_with_another_target_continues_no_text(other: tuple[str, str]) -> None:
    with (
        VerifyNode(heartbeat_s=60.0, measures=True) as verify,  # a profile is of one target
        DraftNode(verify.endpoint, *PATIENT) as draft,
        Client(timeout=DEADLINE_S) as client,
    ):
        draft.wait_until_ready()
        before = fingerprint(draft, client)
        streams = begin(draft.url, mixed(1200))
        draft.wait_for_metric("num_requests_running", lambda num: num == len(streams))
        verify.words += other
        verify.restart()
        for stream in streams:
            error = stream.breaks()
            assert isinstance(error, openai.APIError)
            assert "target_changed" in str(error.body)
            check(stream.wanted, stream.tokens, is_complete=False)
        assert fingerprint(draft, client) != before
        body = {"prompt": PROMPT, "max_tokens": NUM_TOKENS, "temperature": 0, "ignore_eos": True}
        answer = client.post(f"{draft.url}/v1/completions", json=body).json()
        assert answer["system_fingerprint"] == f"fp_{fingerprint(draft, client)}"
        if other[0] == "--model":  # two runs in 16 bits need not agree
            assert answer["choices"][0]["text"] == alone(other[1])
        metrics = draft.metrics()
        assert metrics['request_failures_total{code="target_changed"}'] == len(streams)
        assert any(name.startswith("target_info{") and answer["system_fingerprint"][3:] in name for name in metrics)


def alone(model: str) -> str:
    """Returns the text that this model writes by itself."""
    target = checkpoints.load(model)
    prompt = encode_prompt(target.tokenizer, PROMPT)
    return decode(target.tokenizer, list(generate(target, start(target, num_pages=64), prompt, GREEDY, NUM_TOKENS)))
