#!/usr/bin/env bash
# Importing OpenVINO tells Google Analytics so, without a question, and keeps an id for that in the user's home.
#
# Library:  openvino 2026.4.1 with openvino-telemetry 2025.2.0, which it requires.
# Needs:    Linux, Python 3.11 or later, 250 MB of disk, no network but for pip: a lookup of the host's name counts as an attempt.
# Seen:     `import openvino` alone forks a process that looks up www.google-analytics.com (event "ov", "import", with the
#           version) and writes ~/intel/openvino_ga_cid and ~/intel/stats. If the module openvino_telemetry cannot be imported, it does neither.
# Meaning:  who promises that a program sends nothing must hide that module before the first import (goodspeed/engine/__init__.py).
#           Documented is an opt-out by a program, `opt_in_out --opt_out`, for each user. In what it takes for CI it sends nothing.
# Exit:     0 if that is what the library does, 1 if it does something else.
# Run once: November 28, 2026.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check openvino==2026.4.1 openvino-telemetry==2025.2.0
cat >"$folder/ask.py" <<'PYTHON'
import socket
import sys
from pathlib import Path

LOG = Path(sys.argv[2])  # a process of its own sends


def look_up(host, *rest, **options):
    with LOG.open("a") as log:
        log.write(f"{host}\n")
    raise OSError("not from here")


socket.getaddrinfo = look_up
if sys.argv[1] == "hidden":
    sys.modules["openvino_telemetry"] = None
import openvino

if sys.argv[1] == "plain":  # it sends on a thread of its own
    import openvino_telemetry

    openvino_telemetry.Telemetry().sender.executor.shutdown(wait=True)
asked = LOG.read_text().split() if LOG.exists() else []
kept = sorted(str(path.relative_to(Path.home())) for path in Path.home().rglob("*") if path.is_file())
print(f"{sys.argv[1]}: openvino {openvino.__version__}; looked up: {asked}; kept: {kept}")
seen = bool(asked) and bool(kept) if sys.argv[1] == "plain" else not asked and not kept
sys.exit(not seen)
PYTHON
for way in plain hidden; do
    mkdir "$folder/$way"
    env -i HOME="$folder/$way" "$folder/venv/bin/python" "$folder/ask.py" "$way" "$folder/$way.log" || {
        echo "FAILED: the library behaves in another way than this file says"
        exit 1
    }
done
echo "as seen before"
