"""A profile as a file: it comes back as it was, and what is damaged or of something else is refused by name."""

import json
from datetime import UTC, datetime

import msgspec
import pytest

from goodspeed.errors import ConfigError
from goodspeed.fair.round_time import Sample
from goodspeed.fair.saved import Setting, check, load, make_profile, save, to_json

SETTING = Setting(model="tiny-target", device="cpu", hardware="some CPU", dtype="float32", threads=1)
SAMPLES = [Sample(n, s, c, 0.004 + 0.0003 * n) for n in (8, 16, 64) for s in (1, 8) for c in (0, 100)]
PROFILE = make_profile(SETTING, datetime(2026, 11, 1, tzinfo=UTC), {"torch": "2.13.0"}, SAMPLES)


@pytest.fixture
def file(tmp_path):
    save(PROFILE, str(tmp_path / "profile.json"))
    return tmp_path / "profile.json"


def test_it_comes_back_as_it_was(file):
    assert load(str(file)) == PROFILE
    assert PROFILE.roofline_r2 > 1 - 1e-9
    assert PROFILE.max_tokens == PROFILE.trusted_tokens == 64


def test_a_few_tokens_are_trusted_though_they_were_not_measured():
    small = make_profile(SETTING, PROFILE.measured_at, {}, [sample for sample in SAMPLES if sample.num_tokens < 64])
    assert (small.max_tokens, small.trusted_tokens) == (16, 64)


def test_the_file_is_json_for_everybody(file):
    assert json.loads(file.read_text()) == msgspec.json.decode(json.dumps(to_json(PROFILE)))


def changed(**changes):
    return lambda text: json.dumps(json.loads(text) | changes)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda text: text[: len(text) // 2], "is damaged"),
        (lambda text: "", "is damaged"),
        (lambda text: "\x00", "is damaged"),
        (lambda text: "[" * 100_000, "is damaged"),
        (lambda text: "[]", "is damaged: Expected `object`"),
        (lambda text: text.replace("0.004", "NaN", 1), "is damaged"),
        (changed(version=1), "has version 1, and this program reads 2"),
        (changed(samples=[]), "holds no samples"),
        (
            changed(roofline={"terms": [{"fixed_s": -1.0}]}),
            r"finite and not negative - at `\$.roofline.terms\[0\]`",
        ),
        (changed(roofline={"terms": []}), "at least one term"),
        (changed(samples=[{"num_tokens": 1, "num_sessions": 1, "context_tokens": 0, "seconds": 0.0}]), "impossible"),
        (changed(setting={"model": "x"}), "missing required field"),
        (changed(surprise=1), "unknown field `surprise`"),
        (lambda text: text + " " * (17 << 20), "more than 16777216 bytes"),
    ],
)
def test_a_damaged_file_is_refused(file, damage, said):
    text = damage(file.read_text())
    assert text != file.read_text()
    file.write_text(text)
    with pytest.raises(ConfigError, match=said) as refused:
        load(str(file))
    assert "measure it again with `goodspeed profile --json" in str(refused.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load(str(tmp_path / "none.json"))
    with pytest.raises(ConfigError, match="cannot be written to"):
        save(PROFILE, str(tmp_path / "no" / "folder.json"))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model": "other"}, "is for model 'tiny-target' instead of 'other'"),
        ({"dtype": "bfloat16"}, "dtype 'float32' instead of 'bfloat16'"),
        ({"hardware": "another CPU"}, "hardware 'some CPU' instead of 'another CPU'"),
        ({"threads": 2}, "threads 1 instead of 2"),
        ({"device": "cuda", "dtype": "float16"}, "device 'cpu' instead of 'cuda' and dtype"),
    ],
)
def test_a_profile_of_something_else_is_refused(changes, said):
    with pytest.raises(ConfigError, match=said):
        check(PROFILE, msgspec.structs.replace(SETTING, **changes), "profile.json")


def test_threads_do_not_matter_to_a_gpu():
    gpu = msgspec.structs.replace(SETTING, device="cuda", hardware="some GPU")
    check(make_profile(gpu, PROFILE.measured_at, {}, SAMPLES), msgspec.structs.replace(gpu, threads=9), "profile.json")
