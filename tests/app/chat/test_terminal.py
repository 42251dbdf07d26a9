"""A person at a terminal: commands, answers that are stopped, lines given up; and what stays of a conversation."""

import builtins
import io
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

from goodspeed.app.chat import talk as chat
from goodspeed.app.chat.client import Client
from goodspeed.app.chat.options import ChatConfig, Door
from goodspeed.app.chat.talk import HELP, Conversation, converse
from goodspeed.errors import ChatError
from goodspeed.serving.web.bodies import ChatChunk, ChatChunkChoice, Delta, Usage


def piece(text: str | None, reason: Any = None, usage: Usage | None = None) -> ChatChunk:
    choice = ChatChunkChoice(index=0, delta=Delta(content=text), logprobs=None, finish_reason=reason)
    return ChatChunk(
        id="1", object="chat.completion.chunk", created=1, model="m", choices=[] if usage else [choice], usage=usage
    )


class Node(Client):
    """Says "one two"; what `end` does comes after so many words."""

    def __init__(self, end: Callable[[], None] | None = None, after: int = 0) -> None:
        super().__init__(Door("http://127.0.0.1:1"))
        self.end, self.after = end, after
        self.asked: list[list[str]] = []
        self.is_closed = True

    def stream(self, request: dict[str, Any]) -> Generator[ChatChunk, None, None]:
        self.asked.append([message["content"] for message in request["messages"]])
        self.is_closed = False
        try:
            for number, word in enumerate(["one ", "two"]):
                if self.end is not None and number == self.after:
                    self.end()
                yield piece(word)
            yield piece(None, "stop")
            yield piece(None, usage=Usage(prompt_tokens=1, completion_tokens=2, total_tokens=3))
        finally:
            self.is_closed = True


def interrupt() -> None:
    raise KeyboardInterrupt


def fail() -> None:
    raise ChatError("the node went")


@pytest.fixture
def talk(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[str, str]]:
    monkeypatch.delenv("FORCE_COLOR", raising=False)

    def talk(node: Node, *typed: str, system: str | None = None) -> tuple[str, str]:
        converse(Conversation(ChatConfig(system=system), node, "model"), typed)
        captured = capsys.readouterr()
        return captured.out, captured.err

    return talk


def test_commands(talk: Callable[..., tuple[str, str]]) -> None:
    node = Node()
    out, err = talk(node, "a", " ", "/help", "/reset ", "/resat", "b", " /c", "/quit", "d", system="s")
    assert node.asked == [["s", "a"], ["s", "b"]]
    assert out == "one two\none two\n"
    assert err.splitlines().count(HELP) == 3


def test_an_answer_that_is_stopped_stays_as_far_as_it_came(talk: Callable[..., tuple[str, str]]) -> None:
    node = Node(interrupt, after=1)
    out, err = talk(node, "a", "b")
    assert out == "one \none \n"
    assert node.asked == [["a"], ["a", "one ", "b"]]
    assert err.startswith("[stopped, the first after ")
    assert node.is_closed


@pytest.mark.parametrize("end", [interrupt, fail])
def test_a_turn_without_an_answer_is_forgotten(talk: Callable[..., tuple[str, str]], end: Callable[[], None]) -> None:
    node = Node(end)
    out, err = talk(node, "a", "b")
    assert out == ""
    assert node.asked == [["a"], ["b"]]
    said = {interrupt: "[stopped]\n", fail: "goodspeed: the node went\n"}[end]
    assert err == 2 * said
    assert node.is_closed


def test_times_are_from_the_question_on(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([10.0, 12.0, 14.0])
    monkeypatch.setattr("goodspeed.app.chat.talk.time.perf_counter", lambda: next(ticks))
    answer = Conversation(ChatConfig(), Node(), "model").ask("a")
    assert (answer.first_s, answer.elapsed_s, answer.figures()["tokens_per_s"]) == (2.0, 4.0, 0.5)
    assert (answer.reason, answer.figures()["draft_acceptance_rate"]) == ("stop", None)


def test_a_typed_line_can_be_given_up(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    happenings: Iterator[str | type[BaseException]] = iter(["a", KeyboardInterrupt, "b", EOFError])

    def typed(prompt: str) -> str:
        happening = next(happenings)
        if isinstance(happening, str):
            return happening
        raise happening

    monkeypatch.setattr(builtins, "input", typed)
    assert list(chat.typed()) == ["a", "b"]
    assert capsys.readouterr().out == "\n"


def test_bytes_that_are_not_utf_8_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """`input` decodes what comes from a terminal as `sys.stdin` says, here without one."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9\nb\n"), "utf-8", "surrogateescape"))
    assert list(chat.typed()) == ["caf\ufffd", "b"]
