"""Other people's clients, on real nodes: each gets the text that a plain request with its seed gets.

The official client is always at hand. The others are where `make clients` puts them; each test of one that is not
installed is skipped by its name.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.lib._pydantic import to_strict_json_schema

from tests.together.http.conftest import ASKED, EXTRA, MAX_TOKENS, City, official
from tests.together.http.test_texts import MODEL, user

pytestmark = [pytest.mark.nodes, pytest.mark.filterwarnings("ignore")]


@pytest.mark.essential
def test_the_stream_helper_of_chats(client: openai.OpenAI, expected: str) -> None:
    with client.chat.completions.stream(model=MODEL, messages=user(ASKED), max_tokens=MAX_TOKENS, seed=7) as stream:
        told = "".join(event.delta for event in stream if event.type == "content.delta")
        assert stream.get_final_completion().choices[0].message.content == told == expected


@pytest.mark.essential
def test_responses_whole_and_streamed(client: openai.OpenAI, expected: str) -> None:
    options: dict[str, Any] = {"model": MODEL, "input": ASKED, "extra_body": EXTRA, "max_output_tokens": MAX_TOKENS}
    assert client.responses.create(**options).output_text == expected
    events = list(client.responses.create(**options, stream=True))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == expected
    assert events[-1].type in ("response.completed", "response.incomplete")
    assert events[-1].response.output_text == expected


@pytest.mark.essential
def test_parsed_answers(client: openai.OpenAI) -> None:
    options: dict[str, Any] = {"model": MODEL, "messages": user(ASKED), "response_format": City}
    parsed = client.chat.completions.parse(**options, seed=7).choices[0].message.parsed
    assert isinstance(parsed, City)
    with client.chat.completions.stream(**options, seed=7) as stream:
        assert stream.get_final_completion().choices[0].message.parsed == parsed
    response = client.responses.parse(model=MODEL, input=ASKED, text_format=City, extra_body=EXTRA)
    assert response.output_parsed == parsed


# -- tools: a target that writes at random, held to the form of a call -------------------------------------------------

WEATHER: Any = {"type": "function", "name": "weather", "description": "The weather of a city.", "strict": True}
WEATHER |= {"parameters": to_strict_json_schema(City)}


@pytest.fixture
def tools_client(tools_url: str) -> Iterator[openai.OpenAI]:
    with official(tools_url) as client:
        yield client


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "weather"}], ids=["required", "named"])
def test_a_call_in_a_response_that_has_to_be(tools_client: openai.OpenAI, choice: Any) -> None:
    options: dict[str, Any] = {"model": MODEL, "input": ASKED, "tools": [WEATHER], "tool_choice": choice}
    options |= {"extra_body": EXTRA, "reasoning": {"effort": "none"}, "parallel_tool_calls": False}
    response = tools_client.responses.create(**options)
    [call] = [item for item in response.output if item.type == "function_call"]
    City.model_validate_json(call.arguments)
    with tools_client.responses.stream(**options) as stream:
        streamed = [item for item in stream.get_final_response().output if item.type == "function_call"]
    assert [(one.name, one.arguments) for one in streamed] == [(call.name, call.arguments)]


def second_turn(url: str, expected: str) -> str | None:
    """The answer to a plain request that asks on after the expected text."""
    said: Any = [*user(ASKED), {"role": "assistant", "content": expected}, *user("And of Spain?")]
    with official(url) as client:
        chat = client.chat.completions.create(model=MODEL, messages=said, max_tokens=MAX_TOKENS, seed=7)
    return chat.choices[0].message.content


def anthropics(url: str) -> Any:
    """Anthropic's official client of this node."""
    anthropic = pytest.importorskip("anthropic")
    return anthropic.Anthropic(base_url=url.removesuffix("/v1"), api_key="none", max_retries=0)


@pytest.mark.clients
def test_anthropics_client(url: str, expected: str) -> None:
    options: dict[str, Any] = {"model": MODEL, "messages": user(ASKED), "max_tokens": MAX_TOKENS, "extra_body": EXTRA}
    with anthropics(url) as client:
        [block] = client.messages.create(**options).content
        assert block.text == expected
        with client.messages.stream(**options) as stream:
            assert "".join(stream.text_stream) == expected
            message = stream.get_final_message()
        assert [block.text for block in message.content] == [expected]
        assert message.stop_reason in ("max_tokens", "end_turn")
        assert 0 < message.usage.output_tokens <= MAX_TOKENS
        counted = client.messages.count_tokens(model=MODEL, messages=user(ASKED))
        assert counted.input_tokens == message.usage.input_tokens
        turns = [*user(ASKED), message.to_param(), *user("And of Spain?")]
        [follow_up] = client.messages.create(**options | {"messages": turns}).content
    assert follow_up.text == second_turn(url, expected)


@pytest.mark.clients
@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "weather"}], ids=["any", "tool"])
def test_a_call_in_a_message_that_has_to_be(tools_url: str, choice: Any) -> None:
    tool = {"name": "weather", "input_schema": WEATHER["parameters"], "strict": True}
    choice |= {"disable_parallel_tool_use": True}
    options: dict[str, Any] = {"model": MODEL, "messages": user(ASKED), "max_tokens": 150, "extra_body": EXTRA}
    options |= {"tools": [tool], "tool_choice": choice}
    with anthropics(tools_url) as client:
        message = client.messages.create(**options)
        [call] = [block for block in message.content if block.type == "tool_use"]
        City.model_validate(call.input)
        assert message.stop_reason == "tool_use"
        with client.messages.stream(**options) as stream:
            [streamed] = [block for block in stream.get_final_message().content if block.type == "tool_use"]
        assert (streamed.name, streamed.input) == (call.name, call.input)
        assert client.messages.count_tokens(model=MODEL, messages=user(ASKED), tools=[tool]).input_tokens > 50


@pytest.mark.clients
@pytest.mark.parametrize("kind", ["OpenAIChatCompletionsModel", "OpenAIResponsesModel"])
def test_the_agents_sdk(url: str, expected: str, kind: str) -> None:
    agents = pytest.importorskip("agents")
    agents.set_tracing_disabled(True)

    async def run() -> tuple[str, str]:
        async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
            model = getattr(agents, kind)(model=MODEL, openai_client=client)
            settings = agents.ModelSettings(max_tokens=MAX_TOKENS, extra_body=EXTRA)
            agent = agents.Agent(name="one", model=model, model_settings=settings)
            whole = await agents.Runner.run(agent, ASKED)
            streamed = agents.Runner.run_streamed(agent, ASKED)
            async for _ in streamed.stream_events():
                pass
            return whole.final_output, streamed.final_output

    assert asyncio.run(run()) == (expected, expected)


@pytest.fixture
def litellm(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else it asks for a list of prices
    return pytest.importorskip("litellm")


@pytest.mark.clients
def test_litellm(url: str, expected: str, litellm: Any) -> None:
    options: dict[str, Any] = {"model": f"openai/{MODEL}", "api_base": url, "api_key": "none", "messages": user(ASKED)}
    options |= {"seed": 7, "max_tokens": MAX_TOKENS}
    assert litellm.completion(**options).choices[0].message.content == expected
    chunks = list(litellm.completion(**options, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == expected
    thought = {"role": "assistant", "content": "Hm.", "provider_specific_fields": {"reasoning": "so"}}
    again = options | {"messages": [*user(ASKED), thought, *user(ASKED)]}  # as it sends back a text that was thought
    assert litellm.completion(**again).choices[0].message.content


@pytest.mark.clients
@pytest.mark.parametrize("by_responses", [False, True])
def test_langchain(url: str, expected: str, by_responses: bool) -> None:
    langchain = pytest.importorskip("langchain_openai")
    options: dict[str, Any] = {"model": MODEL, "base_url": url, "api_key": "none", "max_tokens": MAX_TOKENS}
    model = langchain.ChatOpenAI(**options, use_responses_api=by_responses, extra_body=EXTRA, max_retries=0)
    assert model.invoke(ASKED).text == expected
    assert "".join(chunk.text for chunk in model.stream(ASKED)) == expected


@pytest.mark.clients
def test_instructor_forces_a_tool(tools_url: str) -> None:
    """A call of a tool that has the answer's form. What a target that writes at random would think has no end."""
    instructor = pytest.importorskip("instructor")
    asked: dict[str, Any] = {"model": MODEL, "messages": user(ASKED), "response_model": City, "max_retries": 0}
    chats = instructor.from_openai(official(tools_url)).chat.completions
    assert isinstance(chats.create(**asked, **EXTRA, reasoning_effort="none"), City)
    responses = instructor.from_openai(official(tools_url), mode=instructor.Mode.RESPONSES_TOOLS).chat.completions
    assert isinstance(responses.create(**asked, reasoning={"effort": "none"}, extra_body=EXTRA), City)


@asynccontextmanager
async def agent(url: str, kind: str, **options: Any) -> AsyncIterator[Any]:
    """An agent of pydantic-ai, whose model is served at this address."""
    ai = pytest.importorskip("pydantic_ai")
    models = pytest.importorskip("pydantic_ai.models.openai")
    providers = pytest.importorskip("pydantic_ai.providers.openai")
    async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as official:
        model = getattr(models, kind)(MODEL, provider=providers.OpenAIProvider(openai_client=official))
        yield ai.Agent(model, retries=0, **options)


@pytest.mark.clients
@pytest.mark.parametrize("kind", ["OpenAIChatModel", "OpenAIResponsesModel"])
def test_pydantic_ai(url: str, expected: str, kind: str) -> None:
    settings: dict[str, Any] = {"max_tokens": MAX_TOKENS, "extra_body": EXTRA}

    async def write() -> None:
        async with agent(url, kind, model_settings=settings) as one:
            assert (await one.run(ASKED)).output == expected
            async with one.run_stream(ASKED) as stream:
                assert "".join([text async for text in stream.stream_text(delta=True)]) == expected
                assert 0 < stream.usage.output_tokens <= MAX_TOKENS

    asyncio.run(write())


@pytest.mark.clients
def test_llm(url: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As its documents have it: the address in a file; then text, stream, schema and a second turn."""
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path))
    monkeypatch.setenv("LLM_LOAD_PLUGINS", "")  # read at import: the package of smollm2 is one, here without llama.cpp
    llm = pytest.importorskip("llm")
    entry = f"- {{model_id: here, model_name: {MODEL}, api_base: '{url}', supports_schema: true}}\n"
    (tmp_path / "extra-openai-models.yaml").write_text(entry)
    model = llm.get_model("here")
    options: dict[str, Any] = {"seed": 7, "max_tokens": MAX_TOKENS, "key": "none"}
    conversation = model.conversation()
    assert conversation.prompt(ASKED, stream=False, **options).text() == expected
    streamed = model.prompt(ASKED, stream=True, **options)
    assert "".join(streamed) == expected
    assert 0 < streamed.usage().output <= MAX_TOKENS
    assert City.model_validate_json(model.prompt(ASKED, stream=False, schema=City, key="none", seed=7).text())
    follow_up = conversation.prompt("And of Spain?", stream=False, **options).text()
    assert follow_up == second_turn(url, expected)


@pytest.mark.clients
def test_an_evaluation_of_inspect(url: str, expected: str, tmp_path: Path) -> None:
    """Its model is the one for servers that speak the OpenAI API."""
    inspect = pytest.importorskip("inspect_ai")
    models = pytest.importorskip("inspect_ai.model")
    scorers = pytest.importorskip("inspect_ai.scorer")
    sample = pytest.importorskip("inspect_ai.dataset").Sample(input=ASKED, target=expected)
    task = inspect.Task(dataset=[sample], scorer=scorers.includes())
    settings = models.GenerateConfig(seed=7, max_retries=0, max_tokens=MAX_TOKENS)
    served: dict[str, Any] = {"base_url": url, "api_key": "none", "config": settings, "memoize": False}
    model = models.get_model(f"openai-api/goodspeed/{MODEL}", **served)
    [log] = inspect.eval(task, model=model, log_dir=str(tmp_path), display="none")
    assert log.status == "success"
    assert log.results.scores[0].metrics["accuracy"].value == 1
    assert 0 < log.samples[0].output.usage.output_tokens <= MAX_TOKENS
