#!/usr/bin/env bash
# AutoTokenizer gives other ids than tokenizer.json says, if tokenizer_config.json names one of many classes.
#
# Library:  transformers 5.23.0 with tokenizers 0.23.3.
# Needs:    Linux, Python 3.10 or later, 250 MB of disk, no network but for pip. The script makes its tokenizer.json itself.
# Wanted:   the ids that tokenizers gives with the file, as for `"tokenizer_class": "PreTrainedTokenizerFast"`.
# Seen:     for GPT2Tokenizer, Qwen2Tokenizer, GemmaTokenizer, CohereTokenizer and GPTNeoXTokenizer the file gives only the vocabulary and
#           the merges. Normalizer, pre-tokenizer and decoder are the class's (with GPTNeoXTokenizer also what is put around a text), and
#           special tokens that it has by default are added. So the blanks of "on  12" are split, or its digits are not.
#           LlamaTokenizer does so, too, but reads a file with the pre-tokenizer ByteLevel whole.
# Meaning:  take the names of special tokens from AutoTokenizer, and all else from PreTrainedTokenizerFast.from_pretrained of the same
#           folder, which reads the file whole (goodspeed/engine/tokenizing/tokenizer_folder.py).
# Exit:     0 if that is what the library does, 1 if it does something else.
# Run once: November 28, 2026.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check transformers==5.23.0 tokenizers==0.23.3
cat >"$folder/ask.py" <<'PYTHON'
import json
import sys
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast

FOLDER, TEXT = Path(sys.argv[1]), "on  12, QED"
LOST = {
    **dict.fromkeys(("GPT2Tokenizer", "Qwen2Tokenizer", "GemmaTokenizer"), {"normalizer", "pre_tokenizer", "decoder"}),
    "CohereTokenizer": {"normalizer", "decoder"},
    "GPTNeoXTokenizer": {"normalizer", "pre_tokenizer", "decoder", "post_processor"},
    "LlamaTokenizer": set(),
}
SPLIT = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]

vocab = {char: number for number, char in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
vocab |= {"<s>": 256, "\u0120\u0120": 257, "12": 258}
PARTS = ("normalizer", "pre_tokenizer", "decoder", "post_processor")
backend = Tokenizer(models.BPE(vocab=vocab, merges=[("\u0120", "\u0120"), ("1", "2")]))
backend.normalizer = normalizers.Lowercase()
backend.pre_tokenizer = pre_tokenizers.Sequence(SPLIT)
backend.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Fuse()])
backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 256)])
backend.add_special_tokens([AddedToken("<s>")])
FOLDER.mkdir()
backend.save(str(FOLDER / "tokenizer.json"))
(FOLDER / "config.json").write_text(json.dumps({"model_type": "llama"}))


def load(name, loader=AutoTokenizer):
    config = {"tokenizer_class": name, "bos_token": "<s>", "eos_token": "<s>", "unk_token": "<s>"}
    (FOLDER / "tokenizer_config.json").write_text(json.dumps(config))
    return loader.from_pretrained(FOLDER)


def differing(found):
    theirs, ours = json.loads(found.backend_tokenizer.to_str()), json.loads(backend.to_str())
    return {part for part in PARTS if theirs[part] != ours[part]}


wanted = backend.encode(TEXT).ids
print(f"wanted                  {wanted}")
is_as_seen = load("PreTrainedTokenizerFast")(TEXT)["input_ids"] == wanted
for name in LOST:
    found = load(name)
    ids, lost, more = found(TEXT)["input_ids"], differing(found), sorted(found.get_vocab().keys() - vocab.keys())
    print(f"{name:23} {ids}; other parts: {sorted(lost)}; more tokens: {more}")
    is_as_seen &= (lost, ids == wanted) == (LOST[name], not LOST[name])
    whole = load(name, PreTrainedTokenizerFast)
    is_as_seen &= whole(TEXT)["input_ids"] == wanted and not differing(whole)
sys.exit(not is_as_seen)
PYTHON
"$folder/venv/bin/python" "$folder/ask.py" "$folder/tokenizer" || {
    echo "FAILED: the library behaves in another way than this file says"
    exit 1
}
echo "as seen before"
