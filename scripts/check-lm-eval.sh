#!/usr/bin/env bash
# Compares what lm-eval says of a model in transformers and behind `distilld teacher`: check-lm-eval.sh [FOLDER].
# Needs the release build and the test packages of scripts/setup.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
exec .deps/venv/bin/python scripts/check_lm_eval.py "$@"
