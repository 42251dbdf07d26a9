"""A draft node without a model, or with a server of llama.cpp, serves the target's own texts, and is small."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests import gguf_files, llama_server
from tests.nodes import DraftNode
from tests.together.http.conftest import draft_node, official
from tests.together.http.test_texts import MODEL, generated, prompt, user

pytestmark = pytest.mark.nodes

BARE = ("--model", "none", "--tokenizer", "tiny-target")
MOST_KIB = 160 << 10  # resident at most, all of HTTP included; the schemas of agents' requests took the last 5 MB


@pytest.fixture(name="words", scope="module", params=["none", "llama.cpp"])
def words_fixture(request: pytest.FixtureRequest) -> Iterator[tuple[str, ...]]:
    """Options of a draft node."""
    if request.param == "none":
        yield BARE
        return
    with llama_server.serving(gguf_files.made("tiny-draft-s"), 4, 1024) as url:
        yield ("--model", url, *BARE[2:])


@pytest.fixture(name="bare", scope="module")
def bare_fixture(endpoint: str, words: tuple[str, ...]) -> Iterator[tuple[DraftNode, openai.OpenAI]]:
    with draft_node(endpoint, *words) as (node, url), official(url) as client:
        yield node, client


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_completion_is_what_generate_writes(bare: tuple[DraftNode, openai.OpenAI], temperature: float) -> None:
    _, client = bare
    for index in range(3):
        sampling: Any = {"temperature": temperature, "seed": index}
        answer = client.completions.create(model=MODEL, prompt=prompt(index), max_tokens=60, **sampling)
        assert answer.choices[0].text == generated(prompt(index), 60, **sampling)


def test_it_says_that_it_has_no_model(bare: tuple[DraftNode, openai.OpenAI]) -> None:
    node, client = bare
    told = client.models.list().data[0].model_dump()["goodspeed"]
    if BARE[1] not in node.words:
        assert (told["draft"], told["draft_fingerprint"]) == ("llama-server", "")
        return
    assert (told["draft"], told["draft_fingerprint"]) == ("none", "")
    assert "goodspeed_kv_cache_usage_perc" not in {f"goodspeed_{name}" for name in node.metrics()}
    with pytest.raises(openai.BadRequestError, match="this draft node has no model; send auto, ngram or none"):
        client.completions.create(model=MODEL, prompt="x", extra_body={"goodspeed": {"drafter": "model"}})


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_it_is_small_and_loads_no_torch(bare: tuple[DraftNode, openai.OpenAI]) -> None:
    node, client = bare
    client.completions.create(model=MODEL, prompt=prompt(0), max_tokens=20)
    client.chat.completions.create(model=MODEL, messages=user(prompt(0)), max_tokens=20)
    proc = Path("/proc", str(node.process.pid))
    resident = next(line for line in (proc / "status").read_text().splitlines() if line.startswith("VmRSS"))
    assert int(resident.split()[1]) <= MOST_KIB, resident
    assert not [line for line in (proc / "maps").read_text().splitlines() if "torch" in line]


def test_prompts_are_served_without_torch(words: tuple[str, ...], endpoint: str, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": prompt(index), "seed": index}) + "\n" for index in range(3)))
    program = (
        "import sys; from draft_node.cli import main; status = main()\n"
        "print(*{'torch', 'starlette'} & sys.modules.keys(), file=sys.stderr)\n"
        "sys.exit(status)"
    )
    asked = (f"--verify={endpoint}", f"--prompts={prompts}", "--max-tokens=40", "--log-level=error", "--json")
    command = [sys.executable, "-c", program, *words, *asked]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert (run.returncode, run.stderr.strip()) == (0, "")
    results = sorted(json.loads(run.stdout.splitlines()[-1])["prompts"], key=lambda result: result["index"])
    assert [result["text"] for result in results] == [generated(prompt(i), 40, seed=i) for i in range(3)]
