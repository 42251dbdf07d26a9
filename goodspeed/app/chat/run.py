"""The loop of `goodspeed chat`: reads a line, shows its answer, reads the next line."""

import sys
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from goodspeed.app.chat import lines
from goodspeed.app.chat.client import Client
from goodspeed.app.chat.conversation import INTERRUPTED, Answer, Conversation
from goodspeed.app.chat.options import ChatConfig, Door
from goodspeed.app.chat.plain import line
from goodspeed.app.chat.screen import Events, Page, Screen, described
from goodspeed.command.events import print_json
from goodspeed.errors import ChatError

HELP = """\
/reset  forget the conversation
/help   this
/quit   end; so does Ctrl-D
Ctrl-C stops an answer. All other lines are said to the model."""


def run(config: ChatConfig, door: Door, *, json: bool) -> int:
    """Converses until the input ends; returns the exit status. ChatError when the node cannot be used."""
    screen: Screen = Events() if json else Page(tint=config.tint)
    with Client(door) as client:
        conversation = Conversation(config, _model(config, client), client)
        answers = list[Answer]()
        if not json and lines.at_terminal():
            screen.begin(client.url, conversation.model)
            converse(conversation, screen, lines.typed())
            return 0
        try:
            if json:
                screen.begin(client.url, conversation.model)
            for text in filter(str.strip, lines.given()):
                answers.append(_answer(conversation, screen, text))
                if answers[-1].reason == INTERRUPTED:
                    raise KeyboardInterrupt
        except (ChatError, KeyboardInterrupt) as error:
            if json:
                print_json(result(conversation, client.url, answers) | {"error": str(error) or INTERRUPTED})
            raise
        if json:
            print_json(result(conversation, client.url, answers))
    return 0


def converse(conversation: Conversation, screen: Screen, typed: Iterable[str]) -> None:
    """Converses with a person: an error is shown, and the loop goes on."""
    for text in filter(str.strip, typed):
        match text.strip():
            case "/quit":
                return
            case "/reset":
                conversation.reset()
                screen.say("a new conversation")
            case "/help":
                screen.say(HELP)
            case command if command.startswith("/"):
                screen.say(f"{command} is no command; /help tells which there are")
            case _:
                try:
                    _answer(conversation, screen, text)
                except ChatError as error:
                    print(f"goodspeed: {error}", file=sys.stderr, flush=True)


def _answer(conversation: Conversation, screen: Screen, text: str) -> Answer:
    try:
        answer = conversation.ask(text, screen.show)
    except ChatError:
        screen.cut()
        raise
    screen.end(answer)
    return answer


def _model(config: ChatConfig, client: Client) -> str:
    """Returns the model to use, the wanted or the first; ChatError when it is not served."""
    names = client.models()
    if config.model is not None and config.model not in names:
        raise ChatError(f"{client.url} does not serve the model {config.model!r}; it serves {line(', '.join(names))}")
    return config.model or names[0]


def result(conversation: Conversation, url: str, answers: list[Answer]) -> dict[str, Any]:
    """Returns all turns with their figures, for `--json`."""
    return {
        "url": url,
        "model": conversation.model,
        "messages": [asdict(message) for message in conversation.messages],
        "answers": [described(answer) for answer in answers],
    }
