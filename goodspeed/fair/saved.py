"""Profiles as files: the samples, their setting, and the fitted roofline."""

from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from goodspeed.errors import ConfigError
from goodspeed.fair.fit import fit_roofline, r_squared
from goodspeed.fair.round_time import Roofline, Sample
from goodspeed.untrusted import read_bytes, sanitize

VERSION = 2
MAX_BYTES = 16 << 20
ALWAYS_TRUSTED = 64


class Setting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Model, device and software that measured times depend on."""

    model: str
    device: str  # cpu or cuda
    hardware: str  # name of the processor
    dtype: str
    threads: int  # of the CPU


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Measured forward passes of one model on one device, and the model fitted to them."""

    version: int = VERSION
    setting: Setting
    measured_at: datetime
    versions: dict[str, str]  # of libraries
    samples: list[Sample]
    roofline: Roofline
    roofline_r2: float

    @property
    def max_tokens(self) -> int:
        """Tokens of the largest forward pass that was measured."""
        return max(sample.num_tokens for sample in self.samples)

    @property
    def trusted_tokens(self) -> int:
        """Tokens of the largest forward pass for which the model is trusted; a slow device measures only small
        passes."""
        return max(self.max_tokens, ALWAYS_TRUSTED)


class _Version(msgspec.Struct):
    version: int


def make_profile(setting: Setting, measured_at: datetime, versions: dict[str, str], samples: list[Sample]) -> Profile:
    roofline = fit_roofline(samples)
    return Profile(
        setting=setting,
        measured_at=measured_at,
        versions=versions,
        samples=samples,
        roofline=roofline,
        roofline_r2=r_squared(roofline, samples),
    )


def save(profile: Profile, path: str) -> None:
    """Writes the whole file; ConfigError if it cannot be written."""
    try:
        Path(path).write_bytes(msgspec.json.format(msgspec.json.encode(profile)) + b"\n")
    except OSError as error:
        raise ConfigError(f"the profile cannot be written to {path}: {error.strerror}; choose another place") from error


def to_json(profile: Profile) -> dict[str, Any]:
    """Returns the contents of the file, for `--json`."""
    content: dict[str, Any] = msgspec.to_builtins(profile)
    return content


def load(path: str) -> Profile:
    """Reads a profile from a file; ConfigError describes the fault."""
    again = f"measure it again with `goodspeed profile --json {path}`"
    try:
        data = read_bytes(path, MAX_BYTES)
    except OSError as error:
        raise ConfigError(f"profile {path} cannot be read: {error.strerror}; {again}") from error
    try:
        version = msgspec.json.decode(data, type=_Version).version
        if version != VERSION:
            raise ConfigError(f"profile {path} has version {version}, and this program reads {VERSION}; {again}")
        profile = msgspec.json.decode(data, type=Profile)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ConfigError(f"profile {path} is damaged: {sanitize(str(error))}; {again}") from error
    if not profile.samples:
        raise ConfigError(f"profile {path} is damaged: it holds no samples; {again}")
    return profile


def check(profile: Profile, setting: Setting, path: str) -> None:
    """Raises ConfigError for a profile measured under other settings (the thread count: on a CPU only)."""
    wrong = [
        f"{name} {getattr(profile.setting, name)!r} instead of {getattr(setting, name)!r}"
        for name in ("model", "device", "hardware", "dtype", *(("threads",) if setting.device == "cpu" else ()))
        if getattr(profile.setting, name) != getattr(setting, name)
    ]
    if wrong:
        raise ConfigError(
            f"profile {path} is for {' and '.join(wrong)}; measure with `goodspeed profile` here, or omit the option"
        )
