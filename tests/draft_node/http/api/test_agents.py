"""Loops of agents over all endpoints: a call, its result, and the answer, as the clients that people use drive them.

The model is a script, so that it calls what it should. Clients that are not installed are skipped by name.
"""

import asyncio
from typing import Any

import openai
import pytest
from openai.lib.responses_tool_runner import RegisteredFunction, ResponsesToolRunner

from draft_node.parsing.parser import ONLY_CONTENT
from tests.chats import function
from tests.draft_node.http.fake import Api, Client, anthropics, official
from tests.draft_node.http.speaking import SpeakingService

pytestmark = pytest.mark.filterwarnings("ignore")

CALL = '<think>\nI ask.\n</think>\n\n<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
ANSWER = "It is cold in Oslo."
WEATHER: Any = function("weather")
SCHEMA = WEATHER["function"]["parameters"]


class Scripted(SpeakingService):
    """Calls a tool, and answers when it has the result."""

    async def write(self, generation, parser=ONLY_CONTENT):
        self.says = ANSWER if "<tool_response>" in self.prompts[-1] else CALL
        async for item in super().write(generation, parser):
            yield item


@pytest.fixture
def service() -> Scripted:
    return Scripted(CALL, num_at_once=5)


def weather(city: str) -> str:
    return f"3 degrees in {city}"


def check(service: Scripted, answer: str) -> None:
    """One call and one answer were written, and the model had the tool's result."""
    assert answer == ANSWER
    assert len(service.prompts) == 2
    assert "3 degrees in Oslo" in service.prompts[1]


@pytest.mark.parametrize("stream", [False, True])
def test_the_official_tool_runner(service: Scripted, stream: bool) -> None:
    schema: Any = {"type": "function", "name": "weather", "parameters": SCHEMA, "strict": False}
    runner = ResponsesToolRunner(functions=[RegisteredFunction(schema, lambda given: weather(str(given["city"])))])
    asked: Any = {"model": "goodspeed", "input": "Oslo?", "store": False}
    check(service, runner.run(official(Api(service=service)), asked, max_steps=4, stream=stream).output_text)


@pytest.mark.clients
@pytest.mark.parametrize("stream", [False, True])
def test_anthropics_tool_runner(service: Scripted, stream: bool) -> None:
    anthropic = pytest.importorskip("anthropic")
    runner = anthropics(Api(service=service)).beta.messages.tool_runner(
        model="goodspeed",
        max_tokens=200,
        messages=[{"role": "user", "content": "Oslo?"}],
        tools=[anthropic.beta_tool(weather, description="x", input_schema=SCHEMA)],
        thinking={"type": "enabled", "budget_tokens": 1024},
        stream=stream,
    )
    [block] = runner.until_done().content
    check(service, block.text)


def asynchronous(service: Scripted) -> openai.AsyncOpenAI:
    """The official client of an application in this process, for those who need it asynchronous."""
    httpx = pytest.importorskip("httpx2")
    transport = httpx.ASGITransport(app=Api(service=service).app)
    http = httpx.AsyncClient(transport=transport)
    return openai.AsyncOpenAI(base_url="http://testserver/v1", api_key="none", http_client=http, max_retries=0)


@pytest.mark.clients
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("kind", ["OpenAIChatCompletionsModel", "OpenAIResponsesModel"])
def test_the_agents_sdk(service: Scripted, kind: str, streamed: bool) -> None:
    agents = pytest.importorskip("agents")
    agents.set_tracing_disabled(True)

    async def run() -> str:
        model = getattr(agents, kind)(model="goodspeed", openai_client=asynchronous(service))
        tool = agents.function_tool(weather, strict_mode=False)
        agent = agents.Agent(name="one", model=model, tools=[tool])
        if not streamed:
            return str((await agents.Runner.run(agent, "Oslo?", max_turns=4)).final_output)
        result = agents.Runner.run_streamed(agent, "Oslo?", max_turns=4)
        async for _ in result.stream_events():
            pass
        return str(result.final_output)

    check(service, asyncio.run(run()))


@pytest.mark.clients
@pytest.mark.parametrize("by_responses", [False, True])
def test_langchain(service: Scripted, by_responses: bool) -> None:
    langchain = pytest.importorskip("langchain_openai")
    messages = pytest.importorskip("langchain_core.messages")
    http = Client(Api(service=service).app, base_url="http://testserver/v1")
    options: dict[str, Any] = {"model": "goodspeed", "base_url": "http://testserver/v1", "api_key": "none"}
    model = langchain.ChatOpenAI(**options, http_client=http, use_responses_api=by_responses, max_retries=0)
    bound = model.bind_tools([WEATHER])
    turns = [messages.HumanMessage("Oslo?")]
    first = bound.invoke(turns)
    [call] = first.tool_calls
    assert (call["name"], call["args"]) == ("weather", {"city": "Oslo"})
    turns += [first, messages.ToolMessage("3 degrees in Oslo", tool_call_id=call["id"])]
    check(service, bound.invoke(turns).text)
