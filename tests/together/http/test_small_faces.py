"""With real nodes: what is told of a prompt is the target's, and a prediction changes no text but how it comes."""

from typing import Any

import openai
import pytest
import torch
from transformers import AutoModelForCausalLM

from goodspeed.embedded.models import path
from tests.together.cluster.cluster import prompt_ids
from tests.together.http.test_texts import MODEL, prompt, user

pytestmark = pytest.mark.nodes


@torch.inference_mode()
def test_a_scored_prompt_as_an_evaluation_harness_asks_for_it(client: openai.OpenAI) -> None:
    """Its log-probabilities are those of plain transformers; the last entry is the one token that was asked for."""
    model = AutoModelForCausalLM.from_pretrained(path("tiny-target"), dtype=torch.float32).eval()
    options: dict[str, Any] = {"model": MODEL, "echo": True, "logprobs": 1, "temperature": 0, "seed": 1}
    for index in range(2):
        ids = prompt_ids(index)
        rows = model(torch.tensor([ids])).logits[0].log_softmax(-1)
        expected = [float(row[token]) for row, token in zip(rows, ids[1:], strict=False)]
        for max_tokens in (0, 1):
            answer = client.completions.create(prompt=ids, max_tokens=max_tokens, **options)
            told = answer.choices[0].logprobs
            assert told.token_logprobs[0] is None
            assert told.token_logprobs[1 : len(ids)] == pytest.approx(expected, abs=1e-4)
            assert len(told.tokens) == len(ids) + max_tokens
            assert answer.choices[0].text.startswith(prompt(index))
            greedy = [
                max(top.values()) == top[token]
                for token, top in zip(told.tokens[1:], told.top_logprobs[1:], strict=True)
            ]
            assert greedy[: len(ids) - 1] == [
                int(row.argmax()) == token for row, token in zip(rows, ids[1:], strict=False)
            ]


def test_a_prediction_is_a_draft(client: openai.OpenAI) -> None:
    """The text itself as its prediction: it is the same text, and most of it comes from the prediction."""
    options: dict[str, Any] = {"model": MODEL, "messages": user("What is the capital of France?"), "seed": 3}
    options |= {"max_tokens": 40, "extra_body": {"ignore_eos": True}}
    plain = client.chat.completions.create(**options)
    expected = {"type": "content", "content": plain.choices[0].message.content}
    predicted = client.chat.completions.create(**options | {"prediction": expected})
    assert predicted.choices[0].message.content == plain.choices[0].message.content
    details = predicted.usage.completion_tokens_details
    assert (details.accepted_prediction_tokens or 0) > 20
    expected["content"] = "Nothing of this is said."
    wrong = client.chat.completions.create(**options | {"prediction": expected})
    assert wrong.choices[0].message.content == plain.choices[0].message.content
