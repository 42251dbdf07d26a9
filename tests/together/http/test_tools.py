"""Tools with real nodes and the official client: calls that have to be are there and valid, streamed as whole."""

import json
from collections.abc import Iterator
from typing import Any, Literal

import openai
import pytest
from openai.lib.streaming.chat import ChatCompletionStream
from pydantic import BaseModel, Field

from tests import chats
from tests.together.http.conftest import official
from tests.together.http.test_texts import MODEL

pytestmark = pytest.mark.nodes


class Weather(BaseModel):
    """The weather of a city."""

    city: Literal["Rome", "Oslo"]
    days: int = Field(ge=0, le=9)
    units: Literal["C", "F"] | None


TOOL: Any = openai.pydantic_function_tool(Weather)
LOOSE: Any = chats.function("time", at={"type": "boolean"})
SEEDS = range(2)


@pytest.fixture
def client(tools_url: str) -> Iterator[openai.OpenAI]:
    with official(tools_url) as client:
        yield client


def request(seed: int, **options: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "What is the weather?"}]
    return {"model": MODEL, "messages": messages, "seed": seed, "max_tokens": 300, **options}


def calls_of(message: Any) -> list[tuple[str, str]]:
    return [(call.function.name, call.function.arguments) for call in message.tool_calls or []]


@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "Weather"}}], ids=["required", "named"]
)
@pytest.mark.parametrize("effort", ["none", "high"])
def test_a_call_that_has_to_be_is_valid(client: openai.OpenAI, choice: Any, effort: str) -> None:
    for seed in SEEDS:
        asked = request(
            seed, tools=[TOOL, LOOSE], tool_choice=choice, parallel_tool_calls=False, reasoning_effort=effort
        )
        (answer,) = client.chat.completions.create(**asked).choices
        if answer.finish_reason == "length":  # it thought for too long
            assert effort == "high"
            continue
        assert answer.finish_reason == "tool_calls"
        ((name, arguments),) = calls_of(answer.message)
        assert answer.message.content is None
        if name == "Weather":
            Weather.model_validate_json(arguments)
        else:
            assert isinstance(json.loads(arguments)["at"], bool)


def test_streams_and_drafts_say_the_same(client: openai.OpenAI) -> None:
    for seed in SEEDS:
        asked = request(seed, tools=[TOOL], tool_choice="required", parallel_tool_calls=False, reasoning_effort="none")
        (whole,) = client.chat.completions.create(**asked).choices
        (alone,) = client.chat.completions.create(**asked, extra_body={"goodspeed": {"drafter": "none"}}).choices
        assert (calls_of(alone.message), alone.finish_reason) == (calls_of(whole.message), whole.finish_reason)
        stream: ChatCompletionStream[Any]
        with client.chat.completions.stream(**asked) as stream:
            (streamed,) = stream.get_final_completion().choices
        assert calls_of(streamed.message) == calls_of(whole.message)
        assert streamed.finish_reason == whole.finish_reason


def test_calls_of_a_target_that_ends_its_turns_with_a_stop_string(url: str) -> None:
    with official(url) as client:
        for seed in SEEDS:
            asked = request(seed, tools=[TOOL], tool_choice="required", temperature=1)
            (choice,) = client.chat.completions.create(**asked).choices
            assert choice.finish_reason == "tool_calls"
            assert choice.message.content is None
            assert calls_of(choice.message)
