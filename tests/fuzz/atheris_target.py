"""The decoders under atheris, which looks for inputs that reach new code: `make fuzz-decoders SECONDS=600`.

    python -m tests.fuzz.atheris_target [CORPUS] [-max_total_time=SECONDS and other options of libFuzzer]

The first byte of an input says which decoder gets the rest; `decoders.check` is the judge, as in the tests. Without
atheris (`pip install -e '.[fuzz]'`) the same inputs come from the plain random mutator of `damage.py`.
"""

import sys
import time
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

try:
    import atheris
except ImportError:
    atheris = None

if atheris is None:
    from tests.fuzz.decoders import DECODERS, check
else:
    with atheris.instrument_imports(include=["goodspeed", "draft_node", "verify_node", "tests.fuzz.decoders"]):
        from tests.fuzz.decoders import DECODERS, check

NAMES = list(DECODERS)
NUM_SEEDS = 8
DEFAULT_S = 60


def one_input(data: bytes) -> None:
    """Anything but a named error ends the run, and libFuzzer writes the input down."""
    if data:
        check(DECODERS[NAMES[data[0] % len(NAMES)]], data[1:])


def write_seeds(folder: Path) -> None:
    """Right inputs, and some that are nearly right, for each decoder."""
    for place, name in enumerate(NAMES):
        for seed in range(NUM_SEEDS):
            make = DECODERS[name].right if seed == 0 else DECODERS[name].wrong
            (folder / f"{place}-{seed}").write_bytes(bytes((place,)) + make(Random(seed)))


def at_random(seconds: float) -> None:
    """Tries inputs at random, without atheris."""
    random, ends_at, number = Random(time.time_ns()), time.monotonic() + seconds, 0
    while time.monotonic() < ends_at:
        seed = random.getrandbits(64)
        place = seed % len(NAMES)
        data = bytes((place,)) + DECODERS[NAMES[place]].wrong(Random(seed))
        try:
            one_input(data)
        except BaseException:
            print(f"{NAMES[place]}: {data!r}", file=sys.stderr)
            raise
        number += 1
    print(f"{number} inputs, none of which got anything but a result or a named error", file=sys.stderr)


def main() -> None:
    options = [word for word in sys.argv[1:] if word.startswith("-")]
    if atheris is None:
        limit = next((word for word in options if word.startswith("-max_total_time=")), f"={DEFAULT_S}")
        at_random(float(limit.partition("=")[2]))
        return
    with TemporaryDirectory() as corpus:
        write_seeds(Path(corpus))
        atheris.Setup([*sys.argv, corpus], one_input)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
