#!/usr/bin/env bash
# OpenVINO's CPU plugin takes longer for a pass with another number of rows than the pass before, also for sizes that it had already.
#
# Library:  openvino 2026.4.1.
# Needs:    Linux, Python 3.11 or later, 300 MB of disk; a processor that is not too busy.
# Seen:     a model of 120 small layers with a dynamic number of rows, one thread, processor time, a busy machine: passes of 8 rows one
#           after another take 3.4 ms, of 9 rows 3.6 ms, of 8 and 9 rows by turns 5.8 ms each, also after a hundred of each.
#           A chat model of 30 layers (SmolLM2-135M, 4 bits) takes 18 ms for 8 rows, and 27 ms by turns.
# Meaning:  who verifies drafts of varying lengths pays that in nearly every pass; keep the number of rows, with spare ones
#           (docs/ENGINE.md#openvino). CPU_RUNTIME_CACHE_CAPACITY changes little.
# Exit:     0 if passes by turns take at least 1.25 times as long, 1 if not.
# Run once: November 28, 2026.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check openvino==2026.4.1
cat >"$folder/time.py" <<'PYTHON'
import sys
import time

sys.modules["openvino_telemetry"] = None  # sends nothing
import numpy as np
import openvino as ov
from openvino import opset13 as ops

WIDTH, LAYERS, PASSES = 256, 120, 100
rng = np.random.default_rng(0)
rows = ops.parameter(ov.PartialShape([-1, WIDTH]), ov.Type.f32)
found = rows
for _ in range(LAYERS):
    matrix = (rng.standard_normal((WIDTH, WIDTH)) / WIDTH**0.5).astype(np.float32)
    found = ops.add(found, ops.tanh(ops.matmul(found, ops.constant(matrix), False, True)))
settings = {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": "1", "INFERENCE_PRECISION_HINT": "f32"}
request = ov.Core().compile_model(ov.Model([found], [rows], "layers"), "CPU", settings).create_infer_request()


def milliseconds(*sizes):
    times = []
    for number in range(PASSES):
        values = np.ones((sizes[number % len(sizes)], WIDTH), np.float32)
        started = time.process_time()
        request.infer([values])
        times.append(time.process_time() - started)
    return 1e3 * float(np.quantile(times[PASSES // 4 :], 0.25))


eight, nine, turns = milliseconds(8), milliseconds(9), milliseconds(8, 9)
ratio = 2 * turns / (eight + nine)
print(f"openvino {ov.__version__}: 8 rows {eight:.2f} ms, 9 rows {nine:.2f} ms, by turns {turns:.2f} ms: {ratio:.2f} times")
sys.exit(ratio < 1.25)
PYTHON
"$folder/venv/bin/python" "$folder/time.py" || {
    echo "FAILED: the library behaves in another way than this file says"
    exit 1
}
echo "as seen before"
