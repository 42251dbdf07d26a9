#!/usr/bin/env bash
# pytest-xdist runs one of several tests with equal node ids, and does not tell so; with pytest 9.2.0, all tests that Schemathesis makes of
# one function have equal node ids.
#
# Libraries: pytest 9.2.0 and 9.1.1, pytest-xdist 3.8.0, Schemathesis 4.32.5.
# Needs:    Linux, Python 3.11 or later, 150 MB of disk.
# Seen:     a function for an OpenAPI document of three operations. pytest 9.1.1: three tests, of which all run, with and without xdist.
#           pytest 9.2.0: three tests, of which three run without xdist, and one with `--numprocesses 2 --dist loadfile`, whose last line is
#           "1 passed". pytest 9.2.0 makes a node id of a function's original name and its parameters; Schemathesis puts the operation
#           into the name only.
# Meaning:  compare the number of tests that were collected with the number that ran, and refuse equal node ids (tests/conftest.py).
# Exit:     0 if that is so, 1 if not.
# Run once: November 29, 2026.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
cat >"$folder/test_pets.py" <<'PYTHON'
import schemathesis

get = {"get": {"responses": {"200": {"description": "found"}}}}
document = {"openapi": "3.1.0", "info": {"title": "pets", "version": "1"}, "paths": {f"/{pet}": get for pet in ("cats", "dogs", "hens")}}
schema = schemathesis.openapi.from_dict(document)


@schema.parametrize()
def test_operation(case):
    assert case.path
PYTHON
cd "$folder"
found=""
for version in 9.1.1 9.2.0; do
    venv/bin/pip install --quiet --disable-pip-version-check "pytest==$version" pytest-xdist==3.8.0 schemathesis==4.32.5
    for options in "--quiet" "--quiet --numprocesses 2 --dist loadfile"; do
        # shellcheck disable=SC2086 # options are words
        passed=$(venv/bin/python -m pytest $options test_pets.py 2>&1 | sed -n 's/.*\b\([0-9][0-9]*\) passed.*/\1/p' | tail -1)
        echo "pytest $version $options: $passed passed"
        found="$found$passed "
    done
done
[ "$found" = "3 3 3 1 " ] || {
    echo "FAILED: the libraries behave in another way than this file says"
    exit 1
}
echo "as seen before"
