"""Rules for logits at a verify node: checked before any work, and told to the target; and its defaults."""

from msgspec.structs import replace

from goodspeed.wire.generation import TokenBias
from goodspeed.wire.handshake import Defaults, Welcome
from goodspeed.wire.messages import LogitRules
from tests.fakes import VOCAB, Desk

RULES = LogitRules(presence_penalty=0.5, min_p=0.1, logit_bias=(TokenBias(VOCAB - 1, -1.0),))


def test_a_session_with_rules_is_opened():
    desk = Desk()
    desk.hello()
    assert desk.open(logit_rules=RULES) == []
    planned = desk.plan()
    [entry] = planned.entries
    assert (entry.rules, entry.prompt_len, entry.text) == (RULES, 3, (1, 2, 3))


def test_a_draft_node_is_told_the_defaults():
    desk = Desk()
    says = Defaults(0.5, repetition_penalty=1.1, min_p=0.05)
    desk.core.register.welcome = replace(desk.core.register.welcome, defaults=says)
    welcome = desk.hello()
    assert isinstance(welcome, Welcome)
    assert welcome.defaults == says
