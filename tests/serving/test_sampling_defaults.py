"""Defaults of requests, in order: the request, the node's operator, the target's makers, the API."""

from pathlib import Path
from typing import Any

import pytest

from goodspeed.engine.tokenizing.generation_settings import MAX_STOP_CHARS, MAX_STOPS, GenerationSettings, TextDefaults
from goodspeed.errors import ConfigError
from goodspeed.serving import sampling_defaults
from goodspeed.serving.sampling_defaults import BOUNDS, Resolved, SamplingRequest, parse_sampling
from goodspeed.wire.codec import decode_down, encode
from goodspeed.wire.generation import LogitRules, Sampling, TokenBias
from goodspeed.wire.handshake import VERSION, Defaults, Welcome
from tests.engine.tokenizing.test_generation_settings import settings

SETTINGS = GenerationSettings(TextDefaults(0.6), TextDefaults(0.7, stop=("\n\n",)))


def welcome(**changes: Any) -> Welcome:
    return Welcome(VERSION, b"verify-1", "fake", 31, 100, 1 << 20, heartbeat_s=1.0, lease_s=6.0, **changes)


def asked(**fields: Any) -> SamplingRequest:
    return SamplingRequest(seed=5, **fields)


def test_a_request_is_resolved_under_the_defaults_of_any_target() -> None:
    request = asked(top_k=3, stop=("c",))
    assert request.resolve(Defaults(0.6, 20, 0.95, stop=("a",))) == Resolved(Sampling(0.6, 3, 0.95, 5), ("c", "a"))
    assert request.resolve(Defaults()) == Resolved(Sampling(1.0, 3, 1.0, 5), ("c",))
    assert asked(stop=("c",), ignore_eos=True).resolve(Defaults(stop=("a",))).stop == ("c",)


def test_rules_are_the_requests_then_the_targets_and_none_where_they_change_nothing() -> None:
    says = Defaults(repetition_penalty=1.1, min_p=0.05)
    assert asked().resolve(Defaults()).rules is None
    assert asked().resolve(says).rules == LogitRules(repetition_penalty=1.1, min_p=0.05)
    assert asked(repetition_penalty=1.0, min_p=0.0, presence_penalty=0.0).resolve(says).rules is None
    bias = (TokenBias(7, -1.0),)
    own = asked(presence_penalty=1.0, frequency_penalty=-0.5, min_p=0.2, logit_bias=bias)
    assert own.resolve(says).rules == LogitRules(1.0, -0.5, 1.1, 0.2, bias)


def test_the_target_is_heard_before_the_draft_model() -> None:
    assert sampling_defaults.known(None, SETTINGS, chat=True) == Defaults(0.7, stop=("\n\n",))
    assert sampling_defaults.known(None, SETTINGS, chat=False) == Defaults(0.6)
    told = welcome(defaults=Defaults(0.1), chat_defaults=Defaults(0.2))
    assert sampling_defaults.known(told, SETTINGS, chat=True) == Defaults(0.2)
    assert sampling_defaults.known(told, SETTINGS, chat=False) == Defaults(0.1)
    assert sampling_defaults.known(welcome(), SETTINGS, chat=True) == Defaults()  # a checkpoint without such files


def test_whatever_a_file_may_say_travels(tmp_path: Path) -> None:
    stops = [f"{i}" + "日" * (MAX_STOP_CHARS - 1) for i in range(MAX_STOPS)]
    most = {"temperature": 100, "top_k": (1 << 31) - 1, "top_p": 1e-6, "stop_strings": stops}
    found = settings(tmp_path, most | {"repetition_penalty": 100, "min_p": 1})
    told = welcome(chat_defaults=sampling_defaults.of_checkpoint(found, chat=True))
    assert decode_down(encode(told, 1 << 20), 1 << 20) == told


def test_an_operator_says_what_requests_leave_open() -> None:
    node = parse_sampling("temperature=0.8, top_p=0.9,top_k=-1,presence_penalty=0.5,repetition_penalty=1.1")
    says = Defaults(0.6, 20, 0.95, min_p=0.05, repetition_penalty=1.3)
    open_ = asked().filled(node).resolve(says)
    assert open_ == Resolved(Sampling(0.8, 0, 0.9, 5), (), LogitRules(0.5, 0.0, 1.1, 0.05))
    said = asked(temperature=0, top_k=3, top_p=1, presence_penalty=0, repetition_penalty=1).filled(node)
    assert said.resolve(says) == Resolved(Sampling(0.0, 3, 1.0, 5), (), LogitRules(min_p=0.05))
    assert asked().filled({}) == asked()


def test_an_operator_may_say_all_that_requests_may() -> None:
    least = ",".join(f"{name}={bounds[0]!r}" for name, bounds in BOUNDS.items())
    most = ",".join(f"{name}={bounds[1]!r}" for name, bounds in BOUNDS.items())
    assert parse_sampling(least) == {**{name: bounds[0] for name, bounds in BOUNDS.items()}, "top_k": 0}
    assert parse_sampling(most) == {name: bounds[1] for name, bounds in BOUNDS.items()}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "'' is not NAME=VALUE with one of temperature, top_p, top_k,"),
        ("temperature", "'temperature' is not NAME=VALUE"),
        ("temprature=1", "'temprature=1' is not"),
        ("temperature=1,temperature=1", "each once"),
        ("temperature=hot", "temperature is 'hot', but must be a number from 0 to 2"),
        ("temperature=nan", "temperature is 'nan', but must be"),
        ("temperature=2.1", "from 0 to 2"),
        ("top_p=0", "from 1e-06 to 1"),
        ("top_k=1.5", "top_k is '1.5', but must be a whole number from -1 to 2147483647"),
        ("top_k=-2", "whole number"),
        ("frequency_penalty=-2.5", "from -2 to 2"),
    ],
)
def test_an_operator_who_says_it_wrong_is_told_in_one_line(text: str, what: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_sampling(text)
    assert str(error.value).startswith(f"--sampling {text}: ")
    assert what in str(error.value)
    assert "as in temperature=0.7,top_p=0.95" in str(error.value)
