"""Settings come from `generation_config.json` and from nowhere else; unsupported ones are named."""

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from goodspeed.engine.tokenizing import generation_settings, tokenizer_folder
from goodspeed.engine.tokenizing.generation_settings import FOR_ALL, FOR_CHATS, GenerationSettings, TextDefaults
from goodspeed.engine.torch import checkpoints
from goodspeed.errors import CheckpointError
from tests.engine.conftest import Save


def settings(folder: Path, for_all: object = None, for_chats: object = None) -> GenerationSettings:
    for file, content in ((FOR_ALL, for_all), (FOR_CHATS, for_chats)):
        if content is not None:
            (folder / file).write_text(content if isinstance(content, str) else json.dumps(content))
    return generation_settings.read("someone/something", folder)


def test_no_file_says_nothing(tmp_path: Path) -> None:
    silent = GenerationSettings(chats=TextDefaults(temperature=0.7, top_p=0.95))
    assert settings(tmp_path) == silent
    assert settings(tmp_path, {"do_sample": True, "eos_token_id": [1, 2], "temperature": None}) == silent


@pytest.mark.parametrize("said", [{"temperature": 0.9}, {"top_k": 20}, {"top_p": 1.0}, {"min_p": 0.1}])
@pytest.mark.parametrize("is_for_chats", [False, True])
def test_chats_are_sampled_as_the_makers_say_if_they_say_how(tmp_path, said, is_for_chats):
    found = settings(tmp_path, *(({}, said) if is_for_chats else (said, {})))
    assert found.chats == TextDefaults(**said)


def test_the_header_of_a_gguf_file_says_it_by_other_names() -> None:
    fields = {"general.name": "m", "general.sampling.temp": 0.6000000238418579, "general.sampling.top_k": 20}
    found = generation_settings.choose("m.gguf", fields, "auto")
    assert found.completions == found.chats == TextDefaults(temperature=0.6, top_k=20)
    fields = {
        f"general.sampling.{key}": value
        for key, value in {
            "penalty_repeat": 1.5,
            "mirostat": 0,
            "mirostat_tau": 5.0,
            "xtc_probability": 0.5,
            "xtc_threshold": 0.1,
        }.items()
    }
    found = generation_settings.choose("m.gguf", fields, "auto")
    assert (found.completions, found.chats.temperature) == (TextDefaults(repetition_penalty=1.5), 0.7)
    assert found.unsupported == ("general.sampling: xtc_probability, xtc_threshold",)
    assert generation_settings.choose("m.gguf", fields, "none") == GenerationSettings()
    none = {"general.sampling.penalty_repeat": 1.5, "general.sampling.penalty_last_n": 0}
    found = generation_settings.choose("m.gguf", none, "auto")
    assert (found.completions.repetition_penalty, found.unsupported) == (None, ())
    with pytest.raises(CheckpointError, match=r"^m.gguf: its field general.sampling.temp is -1.0, .*; convert the m"):
        generation_settings.choose("m.gguf", {"general.sampling.temp": -1.0}, "auto")


def test_penalties_and_ends_do_not_say_how_to_sample(tmp_path: Path) -> None:
    found = settings(tmp_path, {"repetition_penalty": 1.1}, {"stop_strings": "a"})
    assert found.completions == TextDefaults(repetition_penalty=1.1)
    assert found.chats == TextDefaults(0.7, None, 0.95, ("a",), 1.1)


def test_what_is_there_counts_and_transformers_own_defaults_do_not(tmp_path: Path) -> None:
    found = settings(tmp_path, {"temperature": 0.6, "do_sample": False})
    assert found.completions == TextDefaults(temperature=0.6)  # transformers would say top_k 50
    found = settings(tmp_path, {"temperature": 1, "top_k": 20, "top_p": 0.95, "stop_strings": "\nQ:"})
    assert found.completions == found.chats == TextDefaults(1.0, 20, 0.95, ("\nQ:",))
    assert not found.unsupported
    found = settings(tmp_path, {"repetition_penalty": 1.05, "min_p": 0})
    assert found.completions == TextDefaults(repetition_penalty=1.05, min_p=0.0)
    assert not found.unsupported
    assert settings(tmp_path, {"top_k": -1, "temperature": 0}).completions == TextDefaults(temperature=0.0, top_k=0)


def test_chats_have_a_file_more(tmp_path: Path) -> None:
    for_all, for_chats = {"temperature": 0.6, "stop_strings": ["a"]}, {"stop_strings": ["b", "c"], "temperature": None}
    found = settings(tmp_path, for_all, for_chats)
    assert found.completions == TextDefaults(temperature=0.6, stop=("a",))
    assert found.chats == TextDefaults(temperature=0.6, stop=("b", "c"))


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ({"typical_p": 0.5, "no_repeat_ngram_size": 3, "min_p": 0.1}, "no_repeat_ngram_size, typical_p"),
        ({"typical_p": 1.0, "eta_cutoff": 0.0, "num_beams": 1, "suppress_tokens": []}, ""),
        ({"num_beams": 4, "length_penalty": 2.0}, "num_beams"),
        ({"something_new": 2, "max_new_tokens": 20, "another": 0}, "max_new_tokens, something_new"),
        (
            {"no_repeat_ngram_size": 1, "something_new": True, "guidance_scale": 1},
            "no_repeat_ngram_size, something_new",
        ),
        ({"forced_eos_token_id": 1, "forced_bos_token_id": 0}, "forced_bos_token_id, forced_eos_token_id"),
        ({"use_cache": True, "renormalize_logits": True, "token_healing": False}, ""),
        ({"bad\u001b[31m": 2}, r"bad\x1b[31m"),
    ],
)
def test_what_is_not_supported_is_named(tmp_path: Path, content: dict[str, Any], named: str) -> None:
    assert settings(tmp_path, content).unsupported == ((f"{FOR_ALL}: {named}",) if named else ())


def test_a_chats_own_end_of_sequence_is_not_supported(tmp_path: Path) -> None:
    assert settings(tmp_path, None, {"eos_token_id": 3}).unsupported == (f"{FOR_CHATS}: eos_token_id",)


@pytest.mark.parametrize(
    ("content", "key"),
    [
        ({"temperature": -0.5}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"temperature": 10**400}, "temperature"),
        ('{"temperature": NaN}', "temperature"),
        ({"top_k": 2.5}, "top_k"),
        ({"top_p": 0}, "top_p"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"min_p": 1.1}, "min_p"),
        ({"stop_strings": ["x" * (generation_settings.MAX_STOP_CHARS + 1)]}, "stop_strings"),
        ({"stop_strings": ["x"] * (generation_settings.MAX_STOPS + 1)}, "stop_strings"),
        ('{"stop_strings": "\\ud800"}', "stop_strings"),
    ],
)
@pytest.mark.parametrize("file", [FOR_ALL, FOR_CHATS])
def test_a_wrong_value_names_file_key_and_a_way_out(tmp_path: Path, content: object, key: str, file: str) -> None:
    way_out = re.escape(generation_settings.WAY_OUT)
    with pytest.raises(CheckpointError, match=rf"^someone/something: {file}: {key} is .*; {way_out}$"):
        settings(tmp_path, **{"for_all" if file == FOR_ALL else "for_chats": content})


@pytest.mark.parametrize("content", ["{", "[]", "[" * 100_000, '"x"'])
def test_what_is_no_object(tmp_path: Path, content: str) -> None:
    with pytest.raises(CheckpointError, match=rf"someone/something: {FOR_ALL} .*JSON.*remove the file"):
        settings(tmp_path, content)


def test_a_checkpoint_brings_its_settings_or_is_told_not_to(save_checkpoint, caplog):
    folder = save_checkpoint()
    (folder / FOR_ALL).write_text(json.dumps({"top_k": 7, "min_p": 0.5, "typical_p": 0.5, "eos_token_id": [256, 3]}))
    (folder / FOR_CHATS).write_text(json.dumps({"stop_strings": ["."]}))
    with caplog.at_level(logging.WARNING, "goodspeed.engine"):
        found = checkpoints.load(str(folder))
    assert found.settings.completions == TextDefaults(top_k=7, min_p=0.5)
    assert found.settings.chats == TextDefaults(top_k=7, min_p=0.5, stop=(".",))
    ours = [record for record in caplog.records if record.name == "goodspeed.engine"]
    assert [vars(record)["keys"] for record in ours] == [f"{FOR_ALL}: typical_p"]
    (folder / FOR_ALL).write_text(json.dumps({"temperature": -1, "eos_token_id": [256, 3]}))
    told_not_to = checkpoints.load(str(folder), generation_config="none")
    assert told_not_to.settings == GenerationSettings()
    assert found.eos_ids == told_not_to.eos_ids == (256, 3)


@pytest.mark.parametrize(
    ("eos", "why"), [("2", "is '2', but must be a"), ([True], "is"), (list(range(64)), "names 65")]
)
def test_what_ends_a_text_is_a_few_token_ids(save_checkpoint: Save, eos: object, why: str) -> None:
    folder = save_checkpoint()
    (folder / FOR_ALL).write_text(json.dumps({"eos_token_id": eos}))
    for load in (checkpoints.load, tokenizer_folder.load):
        with pytest.raises(CheckpointError, match=rf"eos_token_id {why} .*; correct generation_config.json"):
            load(str(folder))
