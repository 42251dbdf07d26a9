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


class City(BaseModel):
    name: str


class Weather(BaseModel):
    """The weather of a city."""

    city: Literal["Rome", "Oslo"]
    days: int = Field(ge=0, le=9)
    units: Literal["C", "F"] | None


TOOL: Any = openai.pydantic_function_tool(Weather)
OF_CITY: Any = openai.pydantic_function_tool(City, name="get_weather")
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
        (alone,) = client.chat.completions.create(**asked, extra_body={"goodspeed": {"speculate": False}}).choices
        assert (calls_of(alone.message), alone.finish_reason) == (calls_of(whole.message), whole.finish_reason)
        stream: ChatCompletionStream[Any]
        with client.chat.completions.stream(**asked) as stream:
            (streamed,) = stream.get_final_completion().choices
        assert calls_of(streamed.message) == calls_of(whole.message)
        assert streamed.finish_reason == whole.finish_reason


def test_the_clients_parser_has_the_models_object(client: openai.OpenAI) -> None:
    asked = request(1, tools=[TOOL], tool_choice="required", parallel_tool_calls=False, reasoning_effort="none")
    (choice,) = client.chat.completions.parse(**asked).choices
    (call,) = choice.message.tool_calls or []
    assert isinstance(call.function.parsed_arguments, Weather)
    turns = [*asked["messages"], choice.message, {"role": "tool", "tool_call_id": call.id, "content": "sun"}]
    answer = client.chat.completions.create(**request(2, messages=turns, tools=[TOOL], max_tokens=20))
    assert answer.usage is not None
    assert answer.usage.completion_tokens <= 20


# -- the embedded models, which learned no tools -----------------------------------------------------------------------


def conversation(url: str, *, is_streamed: bool) -> tuple[list[Any], list[str]]:
    """The turns and finish reasons of a user who wants a call, has its result sent, and wants an answer in text."""
    turns: list[Any] = [{"role": "user", "content": "Do I need an umbrella in Rome?"}]
    asked: dict[str, Any] = {"model": MODEL, "tools": [OF_CITY], "parallel_tool_calls": False, "temperature": 0}
    named = {"type": "function", "function": {"name": "get_weather"}}
    reasons = list[str]()
    with official(url) as client:
        for choice in (named, "auto"):
            asked = {**asked, "messages": turns, "tool_choice": choice}
            if is_streamed:
                stream: ChatCompletionStream[Any]
                with client.chat.completions.stream(**asked) as stream:
                    (made,) = stream.get_final_completion().choices
            else:
                (made,) = client.chat.completions.create(**asked).choices
            results = [
                {"role": "tool", "tool_call_id": one.id, "content": "sunny"} for one in made.message.tool_calls or []
            ]
            turns += [made.message, *results]
            reasons.append(made.finish_reason)
    return turns, reasons


def test_an_agent_of_the_embedded_models(url: str) -> None:
    assert OF_CITY["function"]["parameters"]["additionalProperties"] is False
    said = []
    for is_streamed in (False, True):
        turns, reasons = conversation(url, is_streamed=is_streamed)
        _, call, result, answer = turns
        assert reasons == ["tool_calls", "stop"]
        ((name, arguments),) = calls_of(call)
        assert name == "get_weather"
        assert not call.content
        City.model_validate_json(arguments)
        assert result["tool_call_id"] == call.tool_calls[0].id
        assert answer.content.strip()
        assert not answer.tool_calls
        said.append((arguments, answer.content))
    assert said[0] == said[1]


def test_calls_of_a_target_that_ends_its_turns_with_a_stop_string(url: str) -> None:
    with official(url) as client:
        for seed in SEEDS:
            asked = request(seed, tools=[TOOL], tool_choice="required", temperature=1)
            (choice,) = client.chat.completions.create(**asked).choices
            assert choice.finish_reason == "tool_calls"
            assert choice.message.content is None
            assert calls_of(choice.message)
