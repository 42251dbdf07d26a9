"""The conversation of `goodspeed chat`.

Answers go to standard output and everything else to standard error, so that a pipe carries answers alone. Control
characters in a node's text never reach the terminal.
"""

import contextlib
import io
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.style import Style

from goodspeed.app.chat.client import Client, safe
from goodspeed.app.chat.options import ChatConfig, Door
from goodspeed.errors import ChatError, ConfigError
from goodspeed.serving.events import print_json
from goodspeed.serving.web.bodies import Delta, Usage

INTERRUPTED = "interrupted"
DIM = Style(dim=True)
HELP = "/reset forgets the conversation, /quit or Ctrl-D ends; Ctrl-C stops an answer"


@dataclass
class Answer:
    """One answer with its times and counts."""

    text: str = ""
    reason: str | None = None
    first_s: float | None = None  # from the request to the first text
    elapsed_s: float = 0.0
    usage: Usage | None = None  # in the final chunk; None for an interrupted answer

    def figures(self) -> dict[str, Any]:
        """Returns the text and its figures; None for figures that the node did not send."""
        usage, own = self.usage, self.usage.goodspeed if self.usage is not None else None
        told = {name: getattr(own, name, None) for name in ("rounds", "drafted", "accepted")}
        return {
            "text": self.text,
            "finish_reason": self.reason,
            "num_tokens": usage.completion_tokens if usage is not None else None,
            "tokens_per_s": usage.completion_tokens / self.elapsed_s if usage is not None else None,
            "first_s": self.first_s,
            "elapsed_s": self.elapsed_s,
            "draft_acceptance_rate": own.accepted / own.drafted if own is not None and own.drafted else None,
            **{f"num_{name}": count for name, count in told.items()},
            "slo": own.slo.model_dump() if own is not None and own.slo is not None else None,
        }

    def footer(self) -> str:
        """Returns the figures as one line for people."""
        told, parts = self.figures(), ["stopped"] if self.reason == INTERRUPTED else []
        if self.usage is not None:
            parts += [f"{told['num_tokens']} tokens", f"{told['tokens_per_s']:.1f} tokens/s"]
        if self.first_s is not None:
            parts.append(f"the first after {1e3 * self.first_s:.0f} ms")
        if told["num_rounds"] is not None:
            rate = told["draft_acceptance_rate"]
            parts.append("nothing drafted" if rate is None else f"{rate:.0%} of drafted tokens accepted")
            parts.append(f"{told['num_rounds']} rounds")
        if slo := told["slo"]:
            promise = {True: " (promised)", False: " (best effort)", None: ""}[slo["promised"]]
            parts.append(f"{slo['tier'] or 'service level'} {'kept' if slo['attained'] else 'missed'}{promise}")
        if self.reason == "length":
            parts.append("cut at the most tokens of an answer")
        return f"[{', '.join(parts)}]"


@dataclass
class Conversation:
    """The turns of a conversation, all sent with every request. Shows answers as they arrive."""

    config: ChatConfig
    client: Client
    model: str
    json: bool = False
    messages: list[dict[str, str]] = field(init=False)
    answers: list[Answer] = field(default_factory=list)
    is_thinking: bool = False

    def __post_init__(self) -> None:
        console = Console(stderr=True)
        self.has_colours = console.color_system is not None and not console.no_color
        self.reset()

    def reset(self) -> None:
        """Drops all turns except the system message."""
        self.messages = [{"role": "system", "content": self.config.system}] if self.config.system else []

    def ask(self, text: str) -> Answer:
        """Sends a turn, shows the answer and returns it. Ctrl-C stops the answer; its text so far is retained.

        A turn without any answer is dropped, so that it can be retried.
        """
        self.messages.append({"role": "user", "content": text})
        answer, started = Answer(), time.perf_counter()
        try:
            with contextlib.closing(self.client.stream(self.config.request(self.model, self.messages))) as chunks:
                for chunk in chunks:
                    answer.usage = chunk.usage or answer.usage
                    for choice in chunk.choices[:1]:
                        answer.reason = choice.finish_reason or answer.reason
                        if choice.delta.content or choice.delta.reasoning_content:
                            answer.first_s = answer.first_s or time.perf_counter() - started
                            answer.text += choice.delta.content or ""
                            self._show(choice.delta)
        except KeyboardInterrupt:
            answer.reason = INTERRUPTED
        finally:
            answer.elapsed_s = time.perf_counter() - started
            self.messages += [{"role": "assistant", "content": answer.text}] if answer.text else []
            if not answer.text:
                self.messages.pop()
            if not self.json and answer.text and not answer.text.endswith("\n"):
                print(flush=True)
        self.answers.append(answer)
        if self.json:
            print_json({"event": "answer", "turn": len(self.answers) - 1, **answer.figures()})
        else:
            self.say(answer.footer())
        return answer

    def _show(self, new: Delta) -> None:
        """Shows a chunk's text. Prints thinking dimmed on standard error, because it is not part of the answer."""
        thinking, text = new.reasoning_content or "", new.content or ""
        if self.json:
            kind = {"event": "thinking" if thinking else "text", "turn": len(self.answers)}
            print_json({**kind, "text": thinking or text})
            return
        if thinking:
            self.say(thinking, end="")
        elif self.is_thinking:
            self.say("\n")
        self.is_thinking = bool(thinking)
        print(safe(text), end="", flush=True)

    def say(self, text: str, end: str = "\n") -> None:
        """Prints a dimmed line on standard error, apart from the answers."""
        print(DIM.render(safe(text)) if self.has_colours else safe(text), end=end, file=sys.stderr, flush=True)


def run(config: ChatConfig, door: Door, *, json: bool) -> int:
    """Chats until the input ends; returns the exit status. ChatError if the node fails."""
    client = Client(door)
    with client.http:
        conversation = Conversation(config, client, client.model(config.model), json)
        if not json and sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty():
            conversation.say(f"{conversation.model} at {door.url}; {HELP}")
            converse(conversation, typed())
            return 0
        if json:
            print_json({"event": "ready", "url": door.url, "model": conversation.model})
        result: dict[str, Any] = {"url": door.url, "model": conversation.model}
        try:
            for text in given():
                if conversation.ask(text).reason == INTERRUPTED:
                    raise KeyboardInterrupt
        except (ChatError, KeyboardInterrupt) as error:
            result["error"] = str(error) or INTERRUPTED
            raise
        finally:
            if json:
                answers = [answer.figures() for answer in conversation.answers]
                print_json({**result, "messages": conversation.messages, "answers": answers})
    return 0


def converse(conversation: Conversation, turns: Iterable[str]) -> None:
    """Chats with a person: shows errors and continues."""
    for text in filter(None, map(str.strip, turns)):
        if text == "/quit":
            return
        if text == "/reset":
            conversation.reset()
        elif text.startswith("/"):
            conversation.say(HELP)
        else:
            try:
                conversation.ask(text)
            except ChatError as error:
                print(f"goodspeed: {error}", file=sys.stderr, flush=True)


def typed() -> Iterator[str]:
    """Yields lines typed at a terminal until Ctrl-D; Ctrl-C discards the current line. Bytes as in `given`."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    with contextlib.suppress(ImportError):  # without it: no history, no arrow keys
        import readline  # noqa: F401 (its import changes `input`)
    while True:
        try:
            yield input("> ")
        except EOFError:
            return
        except KeyboardInterrupt:
            print()


def given() -> Iterator[str]:
    """Yields the nonblank lines of standard input; invalid UTF-8 becomes replacement characters."""
    if sys.stdin is None:
        raise ConfigError("standard input is closed; give it one line for each turn")
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="replace")
    yield from (line.rstrip("\r\n") for line in sys.stdin if line.strip())
