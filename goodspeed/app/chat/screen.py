"""Shows a conversation: text and footers for people, or events for programs.

Answers go to standard output; all else goes to standard error, so that a pipe carries answers alone. Nothing
that a node says reaches a terminal as a control character.
"""

import sys
from typing import Any, Protocol

from msgspec import to_builtins
from rich.console import Console
from rich.style import Style

from goodspeed.app.chat.conversation import INTERRUPTED, Answer
from goodspeed.app.chat.plain import safe
from goodspeed.app.chat.wire import Span
from goodspeed.command.events import print_json

ACCEPTED = Style(color="green")
LOCAL = Style(color="yellow")
"""Style of text that the draft model wrote alone; it is shown even without tints."""

FOOTER = Style(dim=True)
PLAIN = Style()


class Screen(Protocol):
    """Interface of what shows a conversation."""

    def begin(self, url: str, model: str) -> None: ...
    def show(self, spans: tuple[Span, ...]) -> None: ...
    def end(self, answer: Answer) -> None:
        """Shows that an answer is complete, or was stopped."""
        ...

    def cut(self) -> None:
        """Ends the output of an answer that broke off; the caller shows the error."""
        ...

    def say(self, text: str) -> None: ...


class Page:
    """Shows a conversation as text, for people."""

    def __init__(self, *, tint: bool) -> None:
        self._has_colours = _has_colours(Console())
        self._tint = tint and self._has_colours
        self._dims = _has_colours(Console(stderr=True))
        self._at_line_start = True
        self._is_thinking = False

    def begin(self, url: str, model: str) -> None:
        self.say(f"{model} at {url}; /help tells what there is besides talking")

    def show(self, spans: tuple[Span, ...]) -> None:
        for span in spans:
            text = safe(span.text)
            if span.thought:
                self._think(text)
                continue
            self._stop_thinking()
            sys.stdout.write(self._style(span).render(text))
            self._at_line_start = text.endswith("\n")
        sys.stdout.flush()

    def _think(self, text: str) -> None:
        """Shows what the model thinks, dimmed; it is no part of the answer, so it goes to standard error."""
        self._is_thinking = True
        print(FOOTER.render(text) if self._dims else text, end="", file=sys.stderr, flush=True)

    def _stop_thinking(self) -> None:
        if self._is_thinking:
            print("\n", file=sys.stderr, flush=True)
        self._is_thinking = False

    def _style(self, span: Span) -> Style:
        if span.local and self._has_colours:
            return LOCAL
        return ACCEPTED if span.accepted and self._tint else PLAIN

    def end(self, answer: Answer) -> None:
        self.cut()
        self.say(footer(answer))

    def cut(self) -> None:
        self._stop_thinking()
        if not self._at_line_start:
            print(flush=True)
        self._at_line_start = True

    def say(self, text: str) -> None:
        text = safe(text)
        print(FOOTER.render(text) if self._dims else text, file=sys.stderr, flush=True)


class Events:
    """Shows a conversation as JSON lines, for programs."""

    def __init__(self) -> None:
        self._num_answers = 0

    def begin(self, url: str, model: str) -> None:
        print_json({"event": "ready", "url": url, "model": model})

    def show(self, spans: tuple[Span, ...]) -> None:
        text = "".join(span.text for span in spans)
        if any(span.thought for span in spans):
            print_json({"event": "thinking", "turn": self._num_answers, "text": text})
            return
        told = [{"text": span.text, "accepted": span.accepted, "local": span.local} for span in spans]
        print_json({"event": "text", "turn": self._num_answers, "text": text, "spans": told})

    def end(self, answer: Answer) -> None:
        print_json({"event": "answer", "turn": self._num_answers, **described(answer)})
        self._num_answers += 1

    def cut(self) -> None:
        pass

    def say(self, text: str) -> None:
        pass


def described(answer: Answer) -> dict[str, Any]:
    """Returns an answer's text and figures; null for a figure that the node did not tell."""
    told = answer.speculation
    return {
        "text": answer.text,
        "finish_reason": answer.reason,
        "num_tokens": answer.usage.completion_tokens if answer.usage is not None else None,
        "tokens_per_s": answer.tokens_per_s,
        "first_s": answer.first_s,
        "elapsed_s": answer.elapsed_s,
        "acceptance_rate": answer.acceptance_rate,
        "num_rounds": told.rounds if told is not None else None,
        "num_drafted": told.drafted if told is not None else None,
        "num_accepted": told.accepted if told is not None else None,
        "num_local": told.local if told is not None else None,
        "slo": to_builtins(told.slo) if told is not None else None,
    }


def footer(answer: Answer) -> str:
    """Returns one line with an answer's figures."""
    parts = []
    if answer.reason == INTERRUPTED:
        parts.append("stopped")
    if answer.usage is not None:
        parts += [f"{answer.usage.completion_tokens} tokens", f"{answer.tokens_per_s or 0:.1f} tokens/s"]
    if answer.first_s is not None:
        parts.append(f"the first after {1e3 * answer.first_s:.0f} ms")
    if (told := answer.speculation) is not None:
        rate = "nothing drafted" if answer.acceptance_rate is None else f"acceptance {answer.acceptance_rate:.2f}"
        parts += [rate, f"{told.rounds} rounds"]
        if told.local:
            parts.append(f"{told.local} tokens by the draft model alone")
        if told.slo is not None:
            promise = {True: "promised", False: "best effort", None: ""}[told.slo.promised]
            kept = f"{told.slo.tier or 'service level'} {'kept' if told.slo.attained else 'missed'}"
            parts.append(f"{kept} ({promise})" if promise else kept)
    if answer.reason == "length":
        parts.append("cut at the most tokens of an answer")
    return f"[{', '.join(parts)}]"


def _has_colours(console: Console) -> bool:
    return console.color_system is not None and not console.no_color
