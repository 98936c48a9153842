# raypoly on Ray's own image, for KubeRay and other clusters of containers (docs/cluster.md).
#   docker build --build-arg BUILD=cuda -t raypoly:cuda .      # or BUILD=cpu: scorers, and the tiny model
# Versions are written in pyproject.toml and constraints/ alone; Ray's and Python's stand here once more, and a test
# compares them. The CUDA libraries come with the packages, so both builds start from Ray's smaller image.
FROM rayproject/ray:2.60.0-py311-cpu

# torch.compile and Triton call a C++ compiler; vLLM's CPU build asks for libnuma.
RUN sudo apt-get update \
 && sudo apt-get install --yes --no-install-recommends g++ libnuma1 \
 && sudo rm -rf /var/lib/apt/lists/*

ARG BUILD=cuda
COPY --chown=ray:users . /opt/raypoly
WORKDIR /opt/raypoly
RUN case "$BUILD" in cpu) torch=--torch-backend=cpu ;; cuda) torch= ;; *) echo "BUILD is cpu or cuda" >&2; exit 1 ;; esac \
 && pip install --quiet --no-cache-dir uv \
 && uv pip install --system --no-cache --compile-bytecode $torch \
      --override constraints/overrides.txt --editable ".[train,$BUILD]"
