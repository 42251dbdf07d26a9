"""The `goodspeed` command: what it prints, and how it says what is wrong."""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from unittest.mock import Mock

import pytest

from goodspeed.app import cli
from goodspeed.embedded import models
from goodspeed.engine.openvino import loading
from goodspeed.serving.measuring import profiler
from tests.engine import gguf_models

ROOT = Path(__file__).parents[2]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command in this process: exit status, standard output, standard error."""

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["goodspeed", *words])
        try:
            status = cli.main()
        except SystemExit as end:  # argparse
            status = int(end.code or 0)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


@pytest.mark.parametrize("name", models.NAMES)
def test_models_path_is_a_checkpoint_folder(run: Run, name: str) -> None:
    status, out, _ = run("models", "path", name)
    assert status == 0
    assert (Path(out.strip()) / "config.json").is_file()


def test_models_are_listed_with_their_roles(run: Run) -> None:
    status, out, err = run("models")
    assert (status, err) == (0, "")
    assert [(line.split()[0], line.split(maxsplit=1)[1]) for line in out.splitlines()] == [*models.ROLES.items()]


def test_generate_prints_text_or_an_object(run: Run) -> None:
    words = ("generate", "--prompt", "Not far from here", "--max-tokens", "8", "--temperature", "0.8", "--seed", "4")
    status, out, err = run(*words, "--json")
    result = json.loads(out.splitlines()[-1])
    assert status == 0
    names = ["model", "prompt", "seed", "text", "token_ids", "num_tokens", "finish_reason", "tokens_per_s"]
    assert list(result) == names
    assert (result["model"], result["prompt"], result["seed"]) == ("tiny-target", "Not far from here", 4)
    assert result["num_tokens"] == len(result["token_ids"]) <= 8
    assert "tokens/s" in err
    assert run(*words)[:2] == (0, result["text"] + "\n")


@pytest.mark.thorough
def test_generate_tells_that_the_context_is_shorter_than_what_was_asked_for(run: Run) -> None:
    prompt = "word " * 2040  # a token each
    status, out, err = run("generate", "--prompt", prompt, "--max-tokens", "5000", "--temperature", "0", "--json")
    result = json.loads(out.splitlines()[-1])
    told = re.search(r"^goodspeed: --max-tokens 5000 is reduced to (\d+): the model's context has 2048 ", err, re.M)
    assert status == 0
    assert result["num_tokens"] <= int(told.group(1)) < 20
    assert "is reduced" not in run("generate", "--prompt", prompt, "--max-tokens", told.group(1), "--json")[2]


def test_generate_answers_a_chat(run: Run) -> None:
    words = ("generate", "--model", "tiny-draft-s", "--max-tokens", "8", "--temperature", "0", "--json")
    asked = ("hello", "--chat"), ("User: hello\n\nAssistant:",), ("hello",)  # the second is what its template makes
    chat, written, plain = (json.loads(run(*words, "--prompt", *each)[1]) for each in asked)
    assert chat["prompt"] == "hello"
    assert chat["token_ids"] == written["token_ids"] != plain["token_ids"]


def test_a_chat_needs_a_template(run: Run, tmp_path: Path) -> None:
    copytree(models.path("tiny-draft-s"), tmp_path, dirs_exist_ok=True)
    config = tmp_path / "tokenizer_config.json"
    settings = json.loads(config.read_text())
    del settings["chat_template"]
    config.write_text(json.dumps(settings))
    status, out, err = run("generate", "--model", str(tmp_path), "--prompt", "hello", "--chat")
    assert (status, out) == (1, "")
    assert err.splitlines()[-1].startswith("goodspeed: this tokenizer has no chat template; ")


QUICK_PROFILE = ("profile", "--model", "tiny-draft-s", "--seconds", "0.2", "--max-tokens", "16", "--max-context", "0")


def test_profile_prints_what_was_measured_and_the_fit(run: Run) -> None:
    status, out, err = run(*QUICK_PROFILE)
    assert (status, err) == (0, "goodspeed: loading tiny-draft-s, then measuring for about 0.2 s ...\n")
    lines = out.splitlines()
    assert lines[0].split() == ["tokens", "sessions", "context", "ms", "roofline"]
    assert {line.split()[0] for line in lines} >= {"roofline", "knee"}
    assert sum("R2 " in line for line in lines) == 1


def test_profile_measures_no_more_context_than_the_model_has(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiler, "profile", measured := Mock(wraps=profiler.profile))
    assert "--max-context 100000 is more than the model's; measuring with 2047" in run(*QUICK_PROFILE[:-1], "100000")[2]
    assert measured.call_args.args[1].max_context == 2047


def test_profile_gives_an_object(run: Run) -> None:
    status, out, err = run(*QUICK_PROFILE, "--json")
    result = json.loads(out)
    assert status == 0
    assert "knee" in err
    assert result["model"] == "tiny-draft-s"
    assert set(result["roofline"]["terms"][0]) == {"fixed_s", "token_s", "session_s", "context_s"}
    assert isinstance(result["budget"], int)


@pytest.mark.parametrize(("dtype", "computed"), [("auto", "int8"), ("auto", "float32"), ("float32", "float32")])
def test_profile_says_what_computed_a_gguf_file(run, monkeypatch, dtype, computed) -> None:
    monkeypatch.setattr(loading, "has_int8", lambda: computed == "int8")
    asked = (*QUICK_PROFILE[:2], str(gguf_models.made("Q8_0")), *QUICK_PROFILE[3:], "--dtype", dtype, "--json")
    status, out, err = run(*asked)
    result = json.loads(out)
    assert (status, result["engine"], result["dtype"]) == (0, "openvino", computed)
    assert set(result["versions"]) >= {"goodspeed", "torch", "openvino"}
    assert f", {computed} by openvino, --threads 1; " in err


@pytest.mark.parametrize("command", [("generate", "--prompt", "x"), ("profile",)])
@pytest.mark.parametrize(
    ("engine", "told"),
    [
        ("openvino", "goodspeed: --engine openvino: tiny-draft-s is a checkpoint, which torch computes;"),
        ("none-such", "no engine is named 'none-such'; choose one of: "),
    ],
)
def test_the_engine_may_be_named(run: Run, command: tuple[str, ...], engine: str, told: str) -> None:
    status, _, err = run(*command, "--model", "tiny-draft-s", "--engine", engine)
    assert (status, told in err.splitlines()[-1]) == (2, True)


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        ([], 2, "the following arguments are required: COMMAND"),
        (["nonsense"], 2, "COMMAND: invalid choice: 'nonsense' (choose from"),
        (["generat"], 2, "; did you mean generate? See goodspeed --help"),
        (["profile", "--model", "SmolLM"], 1, "did you mean smollm2? Else"),
        (["models", "path", "tiny"], 1, "no model is named 'tiny'; choose one of: tiny-target"),
        (
            ["generate", "--prompt=x", "--speed=9"],
            2,
            "unknown option --speed; did you mean --seed? See goodspeed generate --help",
        ),
        (["generate", "--prompt", ""], 2, "--prompt is empty"),
        (["generate", "--prompt", "x", "--model", "no-such"], 1, "model 'no-such' was not found"),
        (["generate", "--prompt", "x", "--model", str(ROOT / "tests")], 1, "is not a checkpoint folder"),
        (["generate", "--prompt", "word " * 3000], 1, "leave no room in this model's context of 2048"),
        (["generate", "--prompt", "x", "--temperature", "-1"], 2, "--temperature -1.0 is too small"),
        (["profile", "--model", "smolm2"], 1, "did you mean smollm2? Else use an embedded model (tiny-target"),
        (["demo", "--policy", "greedy"], 2, "no policy is named 'greedy'; choose one of: fixed, gradient, random"),
        (["demo", "--preset", "square"], 2, "--preset 'square' is unknown; choose one of: paper"),
        (["demo", "--clients", "0"], 2, "--clients 0 is too small"),
        (["demo", "--draft-models", ","], 2, "--draft-models names none; give one for each"),
        (
            ["demo", "--prompts", "/no/file"],
            1,
            "--prompts /no/file: cannot read it (No such file or directory); give a file",
        ),
    ],
)
def test_a_wrong_command_line_is_one_clear_line(run: Run, words: list[str], status: int, message: str) -> None:
    ended, out, err = run(*words)
    assert (ended, out) == (status, "")
    last = err.splitlines()[-1]
    assert message in last
    assert re.match(r"goodspeed( \w+)?: ", last)
    is_loaded = "leave no room" in message  # it takes the tokenizer to know
    assert err.splitlines()[:-1] == (["goodspeed: loading tiny-target ..."] if is_loaded else [])


WITHOUT = """
import sys
from importlib.machinery import PathFinder
find_spec = PathFinder.find_spec
PathFinder.find_spec = lambda name, *rest: None if name in {} else find_spec(name, *rest)
from {} import cli
sys.argv = ["x", *{}]
sys.exit(cli.main())
"""
"""Runs a command where packages are not installed."""

APP, APP_ROOM = ("rich", "httpx2"), "goodspeed.app"
VERIFY = ("verify_node", "--model", "tiny-target", "--bind", "tcp://127.0.0.1:0")
PROMPTS = str(ROOT / "goodspeed/app/demo/questions.jsonl")
DRAFT = ("draft_node", "--verify=tcp://127.0.0.1:9", "--connect-timeout-s=0.1", "--json", "--prompts", PROMPTS)


def without(missing: tuple[str, ...], room: str, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", WITHOUT.format(missing, room, words)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_extras_are_what_the_project_file_has() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = {name: {line.split(">")[0] for line in lines} for name, lines in project["optional-dependencies"].items()}
    assert extras["app"] == set(APP)
    for names, *packages in cli.NEEDS.values():
        assert set(packages) <= set().union(*(extras[name] for name in names.split(",")))
    assert not [line for line in project["dependencies"] if line.startswith((*APP, "torch"))]


@pytest.mark.parametrize(
    ("missing", "words", "what", "packages", "extra"),
    [
        (APP, (APP_ROOM, "demo"), "`goodspeed demo`", "rich, httpx2", "torch,app"),
        (("torch",), (APP_ROOM, "demo"), "`goodspeed demo`", "torch", "torch,app"),
        (("torch",), (APP_ROOM, "generate", "--prompt", "x"), "`goodspeed generate`", "torch", "torch"),
        (("torch",), (APP_ROOM, "profile", "--model", "tiny-target"), "`goodspeed profile`", "torch", "torch"),
        (("torch",), VERIFY, "--model tiny-target", "torch", "torch"),
        (("torch",), (*DRAFT, "--model", "tiny-draft-s"), "--model tiny-draft-s", "torch", "torch"),
        (("openvino",), (VERIFY[0], "--model", "x.gguf", *VERIFY[3:]), "--model x.gguf", "openvino", "torch,openvino"),
        (("torch", "openvino"), (*DRAFT, "--model", "x.gguf"), "--model x.gguf", "torch, openvino", "torch,openvino"),
    ],
)
def test_without_an_extra_a_command_says_what_to_install(missing, words, what, packages, extra) -> None:
    ended = without(missing, *words)
    assert ended.returncode == 1
    program = {"verify_node": "goodspeed-verify", "draft_node": "goodspeed-draft"}.get(words[0], "goodspeed")
    assert ended.stderr.splitlines() == [
        f"{program}: {what} needs {packages}, which {'are' if ',' in packages else 'is'} not installed; "
        f"in GoodSpeed's folder, try: pip install -c constraints.txt '.[{extra}]'"
    ]


def test_a_draft_node_without_weights_needs_no_torch() -> None:
    ended = without(("torch",), *DRAFT, "--model", "none", "--tokenizer", "tiny-target")
    assert "torch" not in ended.stderr.lower()
    assert "verify node" in ended.stderr.splitlines()[-1]  # it got as far as to miss it


@pytest.mark.parametrize(
    "words", [("models",), ("keygen", "draft", "x", "--help"), ("profile", "--help"), ("demo", "--help")]
)
def test_other_commands_need_no_torch(words: tuple[str, ...]) -> None:
    ended = without(("torch", "transformers", "matplotlib", "zmq"), APP_ROOM, *words)
    assert (ended.returncode, ended.stderr) == (0, "")
