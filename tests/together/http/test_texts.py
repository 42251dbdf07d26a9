"""Over HTTP, with the official client and real nodes, a text is the target's own."""

import asyncio
from dataclasses import replace
from functools import cache
from typing import Any

import openai
import pytest
import torch
from openai.types.chat import ChatCompletionMessageParam
from transformers import AutoModelForCausalLM

from draft_node.http.ask.generation import choice_seed
from goodspeed.app.generate import GenerateConfig, generate
from goodspeed.embedded import prompts
from goodspeed.embedded.models import path
from goodspeed.engine.tokenizing.generation_settings import GenerationSettings
from goodspeed.engine.tokenizing.text import decode
from goodspeed.wire.generation import LogitRules, Sampling, TokenBias
from tests.together.cluster.cluster import alone, load, prompt_ids

pytestmark = pytest.mark.nodes

MODEL = "goodspeed"


def prompt(index: int) -> str:
    return prompts.demo()[index % 8].prompt


OF_SAMPLING = ("top_k", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty")
"""What `goodspeed generate` takes in `--sampling`."""


@cache
def generated(text: str, max_tokens: int, **options) -> str:
    """Returns what `goodspeed generate` writes."""
    rest = {name: options.pop(name) for name in [*options] if name in OF_SAMPLING}
    sampling = ",".join(f"{name}={value}" for name, value in rest.items()) or None
    config = GenerateConfig(prompt=text, max_tokens=max_tokens, sampling=sampling, **options)
    checkpoint = load(config.model)
    if config.generation_config == "none":
        checkpoint = replace(checkpoint, settings=GenerationSettings())
    return str(generate(config, checkpoint)["text"])


def user(text: str) -> list[ChatCompletionMessageParam]:
    return [{"role": "user", "content": text}]


def joined(stream) -> str:
    """Checks on the way that the stream is one that the client's users expect."""
    text, reasons = "", []
    for chunk in stream:
        for choice in chunk.choices:
            text += choice.delta.content or "" if hasattr(choice, "delta") else choice.text
            reasons.append(choice.finish_reason)
    assert reasons[-1] in ("stop", "length")
    assert set(reasons[:-1]) <= {None}
    return text


@pytest.mark.essential
@pytest.mark.parametrize(
    "sampling",
    [
        {},
        {"temperature": 0.7, "top_p": 0.9},
        {"temperature": 0.9, "top_k": 20},
        {"goodspeed": {"drafter": "none"}},
        {"presence_penalty": 0.6, "frequency_penalty": 0.3, "repetition_penalty": 1.2, "min_p": 0.05},
    ],
)
def test_seeded_text_is_that_of_goodspeed_generate(client: openai.OpenAI, sampling: dict[str, Any]) -> None:
    others = ("top_k", "goodspeed", "repetition_penalty", "min_p")  # than OpenAI's own
    extra = {key: sampling[key] for key in others if key in sampling}
    known = {key: value for key, value in sampling.items() if key not in extra}
    alone = {key: value for key, value in sampling.items() if key != "goodspeed"}
    options = {"model": MODEL, "max_tokens": 24, "seed": 7, "extra_body": extra, **known}
    expected = generated(prompt(1), 24, seed=7, **alone)
    assert client.completions.create(prompt=prompt(1), **options).choices[0].text == expected
    expected = generated(prompt(2), 24, seed=7, chat=True, **alone)
    assert client.chat.completions.create(messages=user(prompt(2)), **options).choices[0].message.content == expected
    assert joined(client.chat.completions.create(messages=user(prompt(2)), stream=True, **options)) == expected


def test_biases_and_tokens_that_end_a_text_count_by_their_ids(client: openai.OpenAI) -> None:
    tokenizer = load("tiny-target").tokenizer
    options: dict[str, Any] = {"model": MODEL, "prompt": prompt(1), "max_tokens": 16, "temperature": 0}
    config = GenerateConfig(prompt=prompt(1), max_tokens=16, temperature=0.0)
    free = generate(config, load("tiny-target"))["token_ids"]
    last = next(token for at, token in enumerate(free) if at and token not in free[:at])
    ended = client.completions.create(**options, extra_body={"stop_token_ids": [last], "ignore_eos": True}).choices[0]
    assert (ended.text, ended.finish_reason) == (decode(tokenizer, free[: free.index(last)]), "stop")
    biased = client.completions.create(**options, logit_bias={str(free[0]): -100}).choices[0]
    rules = LogitRules(logit_bias=(TokenBias(free[0], -100.0),))
    assert biased.text == decode(tokenizer, alone(prompt_ids(1), Sampling(temperature=0.0), 16, rules))
    assert biased.text != generated(prompt(1), 16, temperature=0.0)


def test_an_answer_ends_before_the_users_next_turn_and_begins_without_a_blank(client: openai.OpenAI) -> None:
    """HTTP.md's example; without its makers' stop string the model goes on and makes up a turn of the user."""
    question = "What is the capital of France?"
    options: dict[str, Any] = {"model": MODEL, "max_tokens": 40, "seed": 1}
    beyond = generated(question, 40, seed=1, chat=True, generation_config="none")
    assert "\n\nUser:" in beyond
    choice = client.chat.completions.create(messages=user(question), **options).choices[0]
    assert (choice.message.content, choice.finish_reason) == (beyond.partition("\n\n")[0], "stop")
    assert choice.message.content[0].isalpha()
    stream = client.chat.completions.create(messages=user(question), stream=True, **options)
    first = next(text for chunk in stream if (text := chunk.choices[0].delta.content))
    assert first[0].isalpha()
    on = client.chat.completions.create(messages=user(question), extra_body={"ignore_eos": True}, **options).choices[0]
    assert (on.message.content, on.finish_reason) == (beyond, "length")


def test_choices_and_prompts_have_their_own_seeds(client: openai.OpenAI) -> None:
    both = [prompt(0), prompt(3)]
    answer = client.completions.create(model=MODEL, prompt=both, n=2, seed=3, max_tokens=16, echo=True)
    expected = [text + generated(text, 16, seed=choice_seed(3, choice)) for text in both for choice in range(2)]
    assert [choice.text for choice in answer.choices] == expected
    ids = [list(prompt_ids(0)), list(prompt_ids(3))]
    again = client.completions.create(model=MODEL, prompt=ids, n=2, seed=3, max_tokens=16, echo=True)
    assert [choice.text for choice in again.choices] == expected


@torch.inference_mode()
def test_logprobs_are_the_targets_own(client: openai.OpenAI) -> None:
    model = AutoModelForCausalLM.from_pretrained(path("tiny-target"), dtype=torch.float32).eval()
    tokenizer = load("tiny-target").tokenizer
    for _ in range(2):  # the second time its tokens are drafted from the history, whether or not draft models rest
        options: dict[str, Any] = {"model": MODEL, "max_tokens": 24, "seed": 1}
        answer = client.completions.create(**options, prompt=prompt(0), temperature=0.8, logprobs=5)
    assert answer.usage.goodspeed["accepted"] > 0
    choice = answer.choices[0]
    told: Any = choice.logprobs  # the client's type has every field of it optional
    assert "".join(told.tokens) == choice.text
    assert [choice.text[offset:][:1] for offset in told.text_offset] == [t[:1] for t in told.tokens]
    options |= {"logprobs": True, "top_logprobs": 5}
    content = client.chat.completions.create(messages=user(prompt(0)), **options).choices[0].logprobs.content
    chat = tokenizer.apply_chat_template(user(prompt(0)), add_generation_prompt=True, return_dict=False)
    flat = [(token.token, token.logprob, {top.token: top.logprob for top in token.top_logprobs}) for token in content]
    plain = zip(told.tokens, told.token_logprobs, told.top_logprobs, strict=True)
    for context, tokens in ((list(prompt_ids(0)), list(plain)), (chat, flat)):
        ids = [tokenizer.convert_tokens_to_ids(tokenizer.tokenize(token))[0] for token, _, _ in tokens]
        raw = model(torch.tensor([context + ids])).logits[0, len(context) - 1 : -1].log_softmax(-1)
        for row, token_id, (_, logprob, top) in zip(raw, ids, tokens, strict=True):
            assert logprob == pytest.approx(row[token_id].item(), abs=1e-4)
            for name, value in zip(sorted(top.values(), reverse=True)[:5], row.topk(5).values.tolist(), strict=True):
                assert name == pytest.approx(value, abs=1e-4)


def test_a_stop_string_over_token_borders(client: openai.OpenAI) -> None:
    text = generated(prompt(0), 32, temperature=0.0)
    for start, length in ((6, 5), (11, 9), (1, 2)):
        stop = text[start : start + length]
        options: dict[str, Any] = {"model": MODEL, "prompt": prompt(0), "max_tokens": 32, "temperature": 0}
        options["stop"] = ["\0never", stop]
        choice = client.completions.create(**options).choices[0]
        assert (choice.text, choice.finish_reason) == (text.partition(stop)[0], "stop")
        assert joined(client.completions.create(**options, stream=True)) == choice.text


def test_many_mixed_requests_at_once_are_all_complete_and_right(url: str) -> None:
    async def one(client: openai.AsyncOpenAI, number: int) -> tuple[str, str]:
        index, seed, is_chat = number % 8, number // 16, number // 8 % 2 == 1
        options: dict[str, Any] = {"model": MODEL, "max_tokens": 16, "seed": seed, "temperature": 0.8}
        expected = generated(prompt(index), 16, seed=seed, temperature=0.8, chat=is_chat)
        if not is_chat:
            answer = await client.completions.create(prompt=prompt(index), logprobs=2, **options)
            return answer.choices[0].text, expected
        stream = await client.chat.completions.create(messages=user(prompt(index)), stream=True, **options)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream]), expected

    async def all_at_once() -> list[tuple[str, str]]:
        async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
            return await asyncio.gather(*(one(client, number) for number in range(64)))

    for text, expected in asyncio.run(all_at_once()):
        assert text == expected
