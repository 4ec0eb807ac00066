#!/usr/bin/env bash
# A quick check of this machine, then a sweep and the test suite, which reads that sweep, in two processes.
# Arguments go to pytest. Goes on after a failure, and ends with a non-zero code if any of the three failed.
cd "$(dirname "$0")/.." || exit 1
EXTRAS="[test]"
. scripts/environment.sh
failed=""
mlflow run . -e test --env-manager local || failed="$failed test-entry"

swept="$(mktemp -d)"
trap 'rm -rf "$swept"' EXIT
project="$PWD"
if (cd "$swept" && MLFLOW_TRACKING_URI="sqlite:///$swept/mlflow.db" mlflow run "$project" -e sweep \
    --env-manager local -P model_sizes=tiny -P trainers=flat,ghost,fast,standard -P batch_sizes=2 -P seq_lens=16 \
    -P measured_steps=3 -P sweep_name="grid é" -P runs_dir="$swept/runs"); then
    export DPPROF_TEST_SWEEP="$swept"
else
    failed="$failed sweep"
fi

python -m pytest -n 2 --dist loadfile --no-loadscope-reorder "$@" || failed="$failed pytest"
[ -z "$failed" ] || { echo "failed:$failed"; exit 1; }
