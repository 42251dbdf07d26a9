#!/usr/bin/env bash
# transformers dequantises fp8 checkpoints wrongly, or refuses them, where the last block of a weight is not whole.
#
# Library:  transformers 5.23.0 with torch 2.13.0.
# Needs:    Linux, Python 3.10 or later, no GPU, 1 GB of disk or, with the wheel of torch that brings CUDA, 6 GB, no network but for pip.
# Given:    a Llama checkpoint that the script makes: linear weights in float8_e4m3fn, in blocks of 128 by 128 as config.json says, with a
#           float32 factor for each block in weight_scale_inv. 192 rows have a block of 128 and one of 64, as in DeepSeek's own files,
#           where kv_a_proj_with_mqa has 576 rows and five factors.
# Wanted:   each number times the factor of its block, as with 256 rows.
# Seen:     weights are divided evenly by the number of their factors: 192 rows into twice 96, so that 32 rows get the wrong factor,
#           without a warning. 320 rows cannot be divided by three: from_pretrained raises RuntimeError.
#
#               rows of up_proj   away from what was wanted
#                           256                       0.000
#                           192                       0.305
#                           320   Weight shape (320, 128) not divisible by scale grid (3, 1).
#
# Meaning:  take the sizes of blocks from the checkpoint's settings (goodspeed/engine/torch/quantized/layers.py).
# Exit:     0 if that is what the library does, 1 if it does something else.
# Run once: November 28, 2026, CPU build of torch.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check transformers==5.23.0 torch==2.13.0 safetensors==0.8.0 accelerate==1.15.0
cat >"$folder/ask.py" <<'PYTHON'
import json
import logging
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers.utils import logging as theirs

BLOCK, LARGEST = 128, 448.0
FP8 = {"quant_method": "fp8", "weight_block_size": [BLOCK, BLOCK], "dequantize": True}


class Reports(logging.Handler):
    text = ""

    def emit(self, record):
        self.text += record.getMessage()


def in_blocks(weight):
    """Returns a weight in fp8, the factors of its blocks, and both multiplied."""
    factors = torch.empty([-(-size // BLOCK) for size in weight.shape])
    quantized, product = weight.to(torch.float8_e4m3fn), torch.empty_like(weight)
    for row in range(factors.shape[0]):
        for col in range(factors.shape[1]):
            block = slice(row * BLOCK, (row + 1) * BLOCK), slice(col * BLOCK, (col + 1) * BLOCK)
            factors[row, col] = weight[block].abs().max() / LARGEST
            quantized[block] = (weight[block] / factors[row, col]).to(torch.float8_e4m3fn)
            product[block] = quantized[block].float() * factors[row, col]
    return quantized, factors, product


def error_of(folder, num_rows):
    """Returns how far the loaded up_proj is from what was wanted, relative to it."""
    torch.manual_seed(0)
    sizes = {"hidden_size": BLOCK, "intermediate_size": num_rows, "num_attention_heads": 2, "num_hidden_layers": 1}
    config = LlamaConfig(**sizes, vocab_size=16)
    stored, wanted = {}, {}
    for name, weight in LlamaForCausalLM(config).float().state_dict().items():
        if "_proj" in name:
            weight[BLOCK:] *= 2  # rows of the second block are larger
            stored[name], stored[f"{name}_scale_inv"], wanted[name] = in_blocks(weight)
        else:
            stored[name] = weight.clone()
    folder.mkdir()
    save_file(stored, folder / "model.safetensors", {"format": "pt"})
    settings = {**config.to_dict(), "architectures": ["LlamaForCausalLM"], "quantization_config": FP8}
    (folder / "config.json").write_text(json.dumps(settings))
    found = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict()
    name = "model.layers.0.mlp.up_proj.weight"
    return ((found[name] - wanted[name]).norm() / wanted[name].norm()).item()


theirs.disable_default_handler()
theirs.disable_progress_bar()
theirs.add_handler(reports := Reports())
print("rows of up_proj   away from what was wanted")
errors = {}
for num_rows in (256, 192):
    reports.text = ""
    errors[num_rows] = error_of(Path(sys.argv[1]) / str(num_rows), num_rows)
    print(f"{num_rows:15} {errors[num_rows]:27.3f}")
is_as_seen = errors[256] == 0.0 and errors[192] > 0.1 and not reports.text
try:
    error_of(Path(sys.argv[1]) / "320", 320)
    is_as_seen = False
except RuntimeError:
    why = "Weight shape (320, 128) not divisible by scale grid (3, 1)."
    print(f"{320:15}   {why if why in reports.text else 'another error'}")
    is_as_seen &= why in reports.text
sys.exit(not is_as_seen)
PYTHON
mkdir "$folder/checkpoints"
"$folder/venv/bin/python" "$folder/ask.py" "$folder/checkpoints" || {
    echo "FAILED: the library behaves in another way than this file says"
    exit 1
}
echo "as seen before"
