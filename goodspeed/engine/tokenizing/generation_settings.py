"""Reads a model's sampling defaults, stop strings and end-of-sequence ids from its files.

The defaults and stop strings are in `generation_config.json`; `chat_generation_config.json` overrides it for chats.
Only values in the files count: transformers' own defaults (top_k 50) are not the model makers' choice. A GGUF file has
defaults in its header. If nothing says how to sample, chats get `FOR_PEOPLE`. As in other servers, `do_sample` is
ignored. End-of-sequence ids are the same for all texts, and also come from `config.json` and the tokenizer.
"""

import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from goodspeed.errors import CheckpointError

logger = logging.getLogger("goodspeed.engine")

FOR_ALL, FOR_CHATS = "generation_config.json", "chat_generation_config.json"

HEADER = "general.sampling"
IN_HEADER = {"temp": "temperature", "penalty_repeat": "repetition_penalty"}
"""Fields of a GGUF file that have other names than in `generation_config.json`."""

OFF_WITH: Mapping[str, tuple[str, float]] = {
    **dict.fromkeys(("mirostat_tau", "mirostat_eta"), ("mirostat", 0)),
    "xtc_threshold": ("xtc_probability", 0),
    "penalty_last_n": ("penalty_repeat", 1),
    "penalty_repeat": ("penalty_last_n", 0),
}
"""Fields that change nothing while another one has this value."""

MAX_EOS_IDS = 64
"""Most end-of-sequence ids: the limit of the wire format."""

MAX_STOPS, MAX_STOP_CHARS = 8, 256
"""Most stop strings, and most characters of one: the limits of the wire format."""

FOR_PEOPLE: Mapping[str, Any] = {"temperature": 0.7, "top_p": 0.95}
"""Sampling of chats whose checkpoint does not say how: at temperature 1 without top_p small models write nonsense."""

WAY_OUT = "correct it, or remove the file (`goodspeed generate`: or --generation-config none)"
WAY_OUT_OF_HEADER = "convert the model again without it (`goodspeed generate`: or give --generation-config none)"

BOUNDS: Mapping[str, tuple[float, float]] = {
    "temperature": (0.0, 100.0),
    "top_p": (1e-6, 1.0),
    "top_k": (-1, (1 << 31) - 1),  # 0 and -1 switch it off
    "min_p": (0.0, 1.0),
    "repetition_penalty": (0.01, 100.0),
}
"""Least and largest value of each supported number."""

SILENT = frozenset({*BOUNDS, "stop_strings"}) | {
    *("_commit_hash", "_from_model_config", "transformers_version", "do_sample"),
    *("bos_token_id", "pad_token_id", "decoder_start_token_id"),
    *("use_cache", "cache_implementation", "cache_config", "return_dict_in_generate", "num_return_sequences"),
    *("output_attentions", "output_hidden_states", "output_scores", "output_logits"),
    *("early_stopping", "length_penalty"),  # for beam search only, which is not supported
    *("renormalize_logits", "remove_invalid_values", "low_memory", "disable_compile", "return_legacy_cache"),
}
"""Keys that need no warning: supported ones, and those that change no text."""

SWITCHED_OFF: tuple[Any, ...] = (0, [], {})
"""Values that switch an unsupported key off, such as a ban of no token."""

OTHERWISE_OFF: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys(
        ("typical_p", "encoder_repetition_penalty", "guidance_scale", "num_beams", "num_beam_groups"), (1,)
    ),
    **dict.fromkeys(("forced_bos_token_id", "forced_eos_token_id"), ()),  # 0 is a token
}
"""Values that switch these keys off instead."""


@dataclass(frozen=True)
class TextDefaults:
    """Defaults for parameters that a request leaves out; None: the API's own default."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()  # strings that end a text, in addition to its request's
    repetition_penalty: float | None = None
    min_p: float | None = None


@dataclass(frozen=True)
class GenerationSettings:
    """A checkpoint's defaults for completions and for chats."""

    completions: TextDefaults = TextDefaults()
    chats: TextDefaults = TextDefaults()
    unsupported: tuple[str, ...] = ()  # unsupported keys in use, as `file: key, key`


def choose(name: str, source: Path | Mapping[str, Any], generation_config: str) -> GenerationSettings:
    """Returns the settings by `--generation-config`: for `auto` the model's, with a warning about unsupported keys.

    source: the checkpoint's folder, or the fields of a GGUF file. Raises CheckpointError for an invalid value.
    """
    if generation_config != "auto":
        return GenerationSettings()
    settings = read(name, source) if isinstance(source, Path) else read_header(name, source)
    if settings.unsupported:
        extra = {"model": name, "keys": "; ".join(settings.unsupported)}
        what = "these settings of the model's generation config are not supported and are ignored"
        logger.warning(what, extra=extra)
    return settings


def read(name: str, folder: Path) -> GenerationSettings:
    """Reads a folder's settings; CheckpointError, naming the checkpoint, for an unreadable file or an invalid value."""
    for_all, for_chats = (_read_file(name, folder / file) for file in (FOR_ALL, FOR_CHATS))
    # eos_token_id is unsupported in the chats' file: all texts share one set of end-of-sequence ids.
    ignored = {FOR_ALL: _unsupported(for_all, {"eos_token_id"}), FOR_CHATS: _unsupported(for_chats, ())}
    return _settings(_checked(name, FOR_ALL, for_all), _checked(name, FOR_CHATS, for_chats), ignored)


def read_header(name: str, fields: Mapping[str, Any]) -> GenerationSettings:
    """Reads the settings in the fields of a GGUF file; CheckpointError, naming the file, for an invalid value."""
    own = {key.removeprefix(f"{HEADER}."): value for key, value in fields.items() if key.startswith(f"{HEADER}.")}
    off = {key for key, (other, value) in OFF_WITH.items() if own.get(other) == value}
    given = {
        IN_HEADER.get(key, key): round(value, 6) if isinstance(value, float) else value  # they are stored in 32 bits
        for key, value in own.items()
        if key not in off
    }
    return _settings(_checked(name, HEADER, given), {}, {HEADER: _unsupported(given, ())})


def _settings(
    completions: dict[str, Any], chats: dict[str, Any], ignored: Mapping[str, Sequence[str]]
) -> GenerationSettings:
    """chats: what differs for them. ignored: unsupported keys by file."""
    chats = completions | chats
    if not chats.keys() & {"temperature", "top_k", "top_p", "min_p"}:
        chats |= FOR_PEOPLE
    return GenerationSettings(
        TextDefaults(**completions),
        TextDefaults(**chats),
        tuple(f"{file}: {', '.join(keys)}" for file, keys in ignored.items() if keys),
    )


def read_eos_ids(name: str, folder: Path, tokenizer: Any, num_tokens: int) -> tuple[int, ...]:
    """Returns the tokens that end a text: those of both config files and the tokenizer's; CheckpointError for others.

    Any of them may be the only one to name the end of a turn. Ids that the model does not have are left out.
    """
    found: list[int] = []
    for file in (FOR_ALL, "config.json"):
        content = _read_file(name, folder / file, "correct it, or get the checkpoint again")
        of_text = content.get("text_config")  # of a model that also reads images
        for settings in (content, of_text if isinstance(of_text, dict) else {}):
            given = settings.get("eos_token_id")
            ids = given if isinstance(given, list) else [] if given is None else [given]
            if not all(type(one) is int for one in ids):
                what = f"{name}: eos_token_id is {ascii(given)[:80]}, but must be a token id or a list of them"
                raise CheckpointError(f"{what}; correct {file}")
            found += ids
    if (own := getattr(tokenizer, "eos_token_id", None)) is not None:
        found.append(int(own))
    known = tuple(dict.fromkeys(one for one in found if 0 <= one < num_tokens))
    if len(known) > MAX_EOS_IDS:
        what = f"{name}: eos_token_id names {len(known)} tokens, but at most {MAX_EOS_IDS} may end a text"
        raise CheckpointError(f"{what}; correct {FOR_ALL}")
    return known


def _read_file(name: str, path: Path, way_out: str = WAY_OUT) -> dict[str, Any]:
    """Reads a JSON object without its null values."""
    if not path.exists():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        what = f"{name}: {path.name} cannot be read as JSON ({error})"
        raise CheckpointError(f"{what}; {way_out}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{name}: {path.name} is not a JSON object; {way_out}")
    return {key: value for key, value in content.items() if value is not None}


def _unsupported(content: Mapping[str, Any], also_known: Iterable[str]) -> list[str]:
    """Returns the unsupported keys that would change a text, as ASCII for a log."""
    asked = content.keys() - SILENT - set(also_known)
    keys = sorted(key for key in asked if content[key] not in OTHERWISE_OFF.get(key, SWITCHED_OFF))
    return [ascii(key)[1:-1][:60] for key in keys]


def _checked(name: str, file: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """Validates and returns the supported keys that are present, under their names in `TextDefaults`."""
    found: dict[str, Any] = {}
    for key, (least, most) in BOUNDS.items():
        if (value := content.get(key)) is not None:
            if type(value) not in ((int,) if key == "top_k" else (int, float)) or not least <= value <= most:
                kind = "a whole number" if key == "top_k" else "a number"
                raise _wrong(name, file, key, value, f"{kind} from {least:.15g} to {most:.15g}")
            found[key] = max(value, 0) if key == "top_k" else float(value)
    if (value := content.get("stop_strings")) is not None:
        stops = [value] if isinstance(value, str) else value
        if not isinstance(stops, list) or len(stops) > MAX_STOPS or not all(map(_is_stop, stops)):
            wanted = f"a text or a list of at most {MAX_STOPS} texts, of 1 to {MAX_STOP_CHARS} characters each"
            raise _wrong(name, file, "stop_strings", value, wanted)
        found["stop"] = tuple(stops)
    return found


def _is_stop(value: Any) -> bool:
    """True for a text without lone surrogates, which no message can have."""
    return isinstance(value, str) and 1 <= len(value) <= MAX_STOP_CHARS and not re.search(r"[\ud800-\udfff]", value)


def _wrong(name: str, file: str, key: str, value: Any, wanted: str) -> CheckpointError:
    if file != HEADER:
        return CheckpointError(f"{name}: {file}: {key} is {ascii(value)[:80]}, but must be {wanted}; {WAY_OUT}")
    shown = next((own for own, known in IN_HEADER.items() if known == key), key)
    what = f"{name}: its field {HEADER}.{shown} is {ascii(value)[:80]}, but must be {wanted}"
    return CheckpointError(f"{what}; {WAY_OUT_OF_HEADER}")
