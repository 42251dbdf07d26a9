"""Frameworks that are built on the official client, on real nodes: what their users do first works as it is documented.

They are where `make clients` puts them; each test of one that is not installed is skipped by its name.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.together.http.conftest import ASKED, EXTRA, MAX_TOKENS, City, official
from tests.together.http.test_texts import MODEL, user

pytestmark = [pytest.mark.nodes, pytest.mark.clients, pytest.mark.filterwarnings("ignore")]

NO_THOUGHT: dict[str, Any] = {"reasoning_effort": "none"}
"""What a target that writes at random would think has no end."""


# -- instructor --------------------------------------------------------------------------------------------------------


def instructed(url: str, **options: Any) -> Any:
    """Instructor's client; by default it forces a call of a tool that has the answer's form."""
    instructor = pytest.importorskip("instructor")
    client = official(url)
    return instructor.from_openai(client, **{name: getattr(instructor.Mode, mode) for name, mode in options.items()})


def for_a_city() -> dict[str, Any]:
    return {"model": MODEL, "messages": user(ASKED), "response_model": City, "max_retries": 0}


def test_instructor_forces_a_tool(tools_url: str) -> None:
    create = instructed(tools_url).chat.completions.create
    assert isinstance(create(**for_a_city(), **EXTRA, **NO_THOUGHT), City)
    responses = instructed(tools_url, mode="RESPONSES_TOOLS").chat.completions.create
    assert isinstance(responses(**for_a_city(), reasoning={"effort": "none"}, extra_body=EXTRA), City)


# -- pydantic-ai -------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def agent(url: str, kind: str, **options: Any) -> AsyncIterator[Any]:
    """An agent of pydantic-ai, whose model is served at this address."""
    ai = pytest.importorskip("pydantic_ai")
    models = pytest.importorskip("pydantic_ai.models.openai")
    providers = pytest.importorskip("pydantic_ai.providers.openai")
    async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as official:
        model = getattr(models, kind)(MODEL, provider=providers.OpenAIProvider(openai_client=official))
        yield ai.Agent(model, retries=0, **options)


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


# -- llm ---------------------------------------------------------------------------------------------------------------


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
    said: Any = [*user(ASKED), {"role": "assistant", "content": expected}, *user("And of Spain?")]
    with official(url) as client:
        chat = client.chat.completions.create(model=MODEL, messages=said, max_tokens=MAX_TOKENS, seed=7)
    assert follow_up == chat.choices[0].message.content


# -- inspect-ai --------------------------------------------------------------------------------------------------------


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
