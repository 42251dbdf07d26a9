"""Parameters of requests take effect; `test_refusals.py` tests those that are refused."""

from typing import Any

import pytest

from draft_node.http.ask.generation import choice_seed
from goodspeed.errors import RequestRefused
from goodspeed.serving.sampling_defaults import SamplingRequest
from goodspeed.wire.handshake import Defaults
from tests.draft_node.http.fake import BODIES, CONTEXT_LEN, USER, Api, FakeService, refused

NEUTRAL: list[dict[str, Any]] = [
    {"frequency_penalty": 0, "presence_penalty": 0.0, "repetition_penalty": 1.0, "min_p": 0},
    {"logit_bias": {}, "user": "somebody", "n": 1, "stop": None, "seed": None},
    {"model": "goodspeed", "stream": False, "top_k": -1, "top_p": 1},
    {"max_tokens": 3, "max_completion_tokens": 3},
    {"stop": []},
]
HARMLESS: dict[str, list[dict[str, Any]]] = {
    "completions": [
        *NEUTRAL,
        {"best_of": 1, "suffix": None, "echo": False, "logprobs": None},
        {"prompt": [5], "add_special_tokens": False, "do_sample": None, "skip_special_tokens": True},
    ],
    "chat/completions": [
        *NEUTRAL,
        {"tools": [], "tool_choice": "none", "functions": [], "parallel_tool_calls": True, "chat_template_kwargs": {}},
        {"response_format": {"type": "text"}, "store": False, "metadata": {"a": "b"}, "modalities": ["text"]},
        {"service_tier": "auto", "reasoning_effort": "none", "prediction": None, "audio": None, "logprobs": False},
        {"safety_identifier": "x", "prompt_cache_key": "y"},
        {"logprobs": False, "top_logprobs": 0, "add_special_tokens": False},
    ],
    "responses": [
        {"store": False, "background": False, "truncation": "disabled", "include": [], "tools": [], "top_logprobs": 0},
        {"stream": True, "stream_options": {"include_usage": True}, "reasoning": {"context": "auto"}},
        {"text": {"format": {"type": "text"}, "verbosity": "medium"}, "reasoning": {"effort": None}, "stream": False},
        {"previous_response_id": None, "conversation": None, "user": "x", "prompt_cache_key": "y"},
        {"include": ["reasoning.encrypted_content"]},
        {"presence_penalty": 0, "frequency_penalty": 0.0, "n": 1},
        {"text": {"format": {"type": "text", "schema": None, "name": None}}},
        {"input": [{"role": "user", "content": "x", "call_id": None, "id": "m", "status": "completed"}]},
        {"tool_choice": "auto", "parallel_tool_calls": True, "service_tier": "auto", "metadata": {}},
    ],
    "messages": [
        {"tools": [], "tool_choice": {"type": "auto"}, "stop_sequences": [], "system": "", "stream": False},
        {"service_tier": "auto", "metadata": {"user_id": "x"}, "thinking": {"type": "disabled"}, "mcp_servers": []},
        {"system": [], "output_config": {}, "temperature": None, "container": None},
        {"messages": [USER, {"role": "system", "content": "Now be brief."}, USER]},
    ],
}


@pytest.mark.parametrize(("path", "body"), [(path, body) for path in HARMLESS for body in HARMLESS[path]])
def test_harmless(api: Api, path: str, body: dict[str, Any]) -> None:
    assert api.ask(path, **body).status_code == 200


def test_what_completions_take_reaches_the_service(api: Api) -> None:
    assert api.complete(min_tokens=2, ignore_eos=True, stop=["x", "y"], logprobs=4).status_code == 200
    (generation,) = api.service.generations
    assert (generation.prompt, generation.min_tokens) == (tuple(b"hello"), 2)
    assert (generation.stop_ids, generation.stop, generation.num_logprobs) == ((), ("x", "y"), 4)


@pytest.mark.parametrize("path", BODIES)
def test_what_every_endpoint_takes_reaches_the_service(api: Api, path: str) -> None:
    options: dict[str, Any] = {"temperature": 0.5, "top_p": 0.9, "top_k": 7, "seed": 3, "goodspeed": {"max_draft": 2}}
    stop: dict[str, Any] = {"responses": {}, "messages": {"stop_sequences": ["x"]}}.get(path, {"stop": "x"})
    assert api.ask(path, 9, **options, **stop).status_code == 200
    [generation] = api.service.generations
    assert (generation.sampling.temperature, generation.sampling.top_p, generation.sampling.top_k) == (0.5, 0.9, 7)
    assert (generation.sampling.seed, generation.max_tokens, generation.max_draft) == (3, 9, 2)
    assert generation.stop == (() if path == "responses" else ("x",))
    assert generation.is_chat == (path != "completions")


def test_what_is_left_open_is_as_the_targets_makers_say(api: Api) -> None:
    api.service.completion_defaults = Defaults(0.6, 20, 0.9, ("Q:",))
    api.service.chat_defaults = Defaults(temperature=0.7, stop=("\n\n", "User:"))
    api.complete()
    api.complete(temperature=1, top_k=0, top_p=1, stop="x")
    api.chat(stop=["User:", "y"])
    open_, said, chat = api.service.generations
    assert (open_.sampling.temperature, open_.sampling.top_k, open_.sampling.top_p) == (0.6, 20, 0.9)
    assert (said.sampling.temperature, said.sampling.top_k, said.sampling.top_p) == (1.0, 0, 1.0)
    assert (open_.stop, said.stop) == (("Q:",), ("x", "Q:"))
    assert (chat.sampling.temperature, chat.sampling.top_k, chat.stop) == (0.7, 0, ("User:", "y", "\n\n"))
    assert [generation.is_chat for generation in api.service.generations] == [False, False, True]


def test_what_the_operator_says_stands_between_the_request_and_the_targets_makers() -> None:
    api = Api(sampling="temperature=0.3,top_p=0.8,frequency_penalty=0.5")
    api.service.chat_defaults = Defaults(temperature=0.7, top_k=20)
    for path in ("chat/completions", "messages", "responses", "completions"):
        api.ask(path)
    api.chat(temperature=1, frequency_penalty=0)
    told = [(one.sampling.temperature, one.sampling.top_p, one.sampling.top_k) for one in api.service.generations]
    assert told == [(0.3, 0.8, 20)] * 3 + [(0.3, 0.8, 0), (1.0, 0.8, 20)]
    penalties = [one.logit_rules and one.logit_rules.frequency_penalty for one in api.service.generations]
    assert penalties == [0.5] * 4 + [None]
    asked: Any = api.service.generations[0].asked
    assert asked.resolve(Defaults(temperature=0.9, top_k=7)).sampling.temperature == 0.3  # also under another target


@pytest.mark.parametrize(
    ("settings", "extension", "found"),
    [
        ({}, None, ("auto", 9)),
        ({}, {"max_draft": 4}, ("auto", 4)),
        ({}, {"max_draft": 99}, ("auto", 9)),
        ({"drafter": "ngram"}, None, ("ngram", 9)),
        ({"drafter": "ngram"}, {"drafter": "auto"}, ("auto", 9)),
        ({"drafter": "none"}, {"drafter": "model", "max_draft": 4}, ("model", 4)),
        ({"drafter": "none"}, {}, ("none", 0)),
        ({}, {"drafter": "none"}, ("none", 0)),
        ({}, {"drafter": "none", "max_draft": 4}, ("none", 0)),
        ({"model": "none", "tokenizer": "t"}, {"drafter": "ngram"}, ("ngram", 9)),
    ],
)
def test_what_drafts_is_the_requests_choice_and_else_the_nodes(settings, extension, found) -> None:
    api = Api(max_draft=9, **settings)
    assert api.complete(goodspeed=extension).status_code == 200
    assert (api.service.generations[0].drafter, api.service.generations[0].max_draft) == found


@pytest.mark.parametrize(
    ("extension", "message"),
    [
        ({"drafter": "model"}, "goodspeed.drafter: this draft node has no model; send auto, ngram or none"),
        ({"drafter": "assistant"}, "goodspeed.drafter must be 'auto', 'model', 'ngram' or 'none'"),
    ],
)
def test_what_cannot_draft_is_refused(extension: dict[str, Any], message: str) -> None:
    assert refused(Api(model="none", tokenizer="t").complete(goodspeed=extension), "goodspeed.drafter") == message


def test_the_first_choice_of_every_prompt_has_the_seed_itself(api: Api) -> None:
    api.complete(prompt=["a", "b"], n=3, seed=5)
    seeds = [generation.sampling.seed for generation in api.service.generations]
    assert seeds[0] == 5
    assert len(set(seeds)) == 3
    assert seeds[:3] == seeds[3:]
    assert [generation.prompt for generation in api.service.generations] == [(97,)] * 3 + [(98,)] * 3


def test_derived_seeds_are_seeds_and_stay_the_same() -> None:
    seeds = {choice_seed(seed, choice) for seed in (0, 1, (1 << 63) - 1, -1, -(1 << 63)) for choice in range(16)}
    assert len(seeds) == 80
    assert all(0 <= seed < 1 << 63 for seed in seeds)
    assert choice_seed(5, 1) == 8566780490978300163  # pinned: the same request gives the same text in every release


def test_without_a_seed_every_choice_has_another(api: Api) -> None:
    api.complete(n=4)
    api.complete(n=4)
    assert len({generation.sampling.seed for generation in api.service.generations}) == 8


def test_how_long_an_answer_is_that_does_not_say(api: Api) -> None:
    """Chats have room to think where the node does not say it either."""
    told = Api(max_tokens=150)
    told.complete()
    told.chat()
    told.chat(messages=[{"role": "user", "content": "x" * (CONTEXT_LEN - 20)}])
    assert [generation.max_tokens for generation in told.service.generations] == [16, 150, 20 - len("user:;")]
    api.chat()
    api.service.context_len = 1 << 15
    api.chat()
    assert [generation.max_tokens for generation in api.service.generations] == [CONTEXT_LEN - len("user:hi;"), 4096]


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_an_answer_longer_than_the_context_ends_with_it(api: Api, name: str) -> None:
    """Agents ask for as many tokens as the largest models write, whatever the context."""
    room = CONTEXT_LEN - len("user:hi;")
    for asked in (room - 1, room, room + 1, (1 << 31) - 1, (1 << 63) - 1):
        answer, num_tokens = api.chat(**{name: asked}).json(), min(asked, room)
        assert (answer["usage"]["completion_tokens"], answer["choices"][0]["finish_reason"]) == (num_tokens, "length")
    answer = api.complete(prompt=["x" * 990, "x" * 500], max_tokens=50, min_tokens=20, echo=True)
    assert [(each.max_tokens, each.min_tokens) for each in api.service.generations[-2:]] == [(10, 10), (50, 20)]
    assert [len(choice["text"]) for choice in answer.json()["choices"]] == [CONTEXT_LEN, 550]
    assert api.complete(prompt="x" * 990, min_tokens=15).status_code == 200
    api.service.context_len = 1 << 21
    api.fail(RequestRefused("malformed", "x"))
    api.chat(**{name: 1 << 21})
    assert api.service.generations[-1].max_tokens == 1 << 20  # a message has no room for more
    refused(api.complete(max_tokens=5000, min_tokens=5001), "min_tokens")


def test_conversations_as_templates_know_them(api: Api) -> None:
    parts = [{"type": "text", "text": text} for text in ("one", "", "two")]
    content = [{"type": "text", "text": "x"}, {"type": "refusal", "refusal": "no"}]
    before = {"role": "assistant", "content": content, "refusal": None, "tool_calls": None, "annotations": []}
    api.chat(messages=[{"role": "developer", "content": "be brief"}, before, {"role": "user", "content": parts}])
    assert bytes(api.service.generations[0].prompt) == b"system:be brief;assistant:x\nno;user:one\ntwo;"


def test_a_request_may_do_without_the_prefix_cache(api: Api) -> None:
    for extension in ({"prefix_cache": False}, {"prefix_cache": True}, {}):
        api.complete(max_tokens=1, goodspeed=extension)
    api.chat(max_tokens=1)
    assert [generation.cache_salt != b"" for generation in api.service.generations] == [False, True, True, True]
    refused(api.complete(goodspeed={"prefix_cache": "no"}), "goodspeed.prefix_cache", "prefix_cache")


def test_a_users_salt_is_always_the_same_and_another_users_is_not() -> None:
    here, other = FakeService(), FakeService()

    def salt(service: FakeService, user: str) -> bytes:
        return service.generation((1,), SamplingRequest(seed=1), 1, user=user).cache_salt

    assert salt(here, "alice") == salt(here, "alice") != salt(other, "alice"), "another process has others"
    assert len({salt(here, user) for user in ("alice", "bob", "")}) == 3
    assert 0 < len(salt(here, "alice")) <= 32
