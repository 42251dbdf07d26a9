"""Chats with the model behind a draft node's HTTP API, and shows speculation statistics for each answer.

Each line typed at a terminal, or each line of standard input, is one turn.
"""

import argparse
import os

from goodspeed.app.chat.options import ChatConfig, door
from goodspeed.serving.config import add_options, from_namespace
from goodspeed.serving.running import add_common_options

NAME = "chat"
HELP = "talk with a model over a draft node's HTTP API"
EXAMPLE = "goodspeed chat --url http://127.0.0.1:8000 --max-tokens 60"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser, ChatConfig)
    add_common_options(parser)


def run(namespace: argparse.Namespace) -> int:
    config = from_namespace(ChatConfig, namespace)
    entrance = door(config, os.environ)
    # Imported after the options are checked: an HTTP client is slow to import.
    from goodspeed.app.chat.talk import run as talk

    return talk(config, entrance, json=namespace.json)
