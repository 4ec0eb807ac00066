#!/usr/bin/env bash
# A quick check of this machine, then the test suite. Arguments go to pytest. Goes on after a failure, and
# ends with a non-zero code if any of the three failed.
cd "$(dirname "$0")/.." || exit 1
EXTRAS="[test]"
. scripts/environment.sh
failed=""
mlflow run . -e test --env-manager local || failed="$failed test-entry"
mlflow run . -e sweep --env-manager local -P model_sizes=tiny -P batch_sizes=2 -P seq_lens=64 \
    || failed="$failed sweep"
python -m pytest "$@" || failed="$failed pytest"
[ -z "$failed" ] || { echo "failed:$failed"; exit 1; }
