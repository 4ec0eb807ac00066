#!/usr/bin/env bash
# Hardware counters under Nsight Compute: every trainer at batch 8 and 16, sequence 256 and 1024. Goes on past a
# failed cell, and ends with the summary. Arguments go to `mlflow run`:
#     scripts/run_profiling_ncu.sh -P model_sizes=small -P counter_metrics=full
cd "$(dirname "$0")/.." || exit 1
. scripts/environment.sh
exec mlflow run . -e sweep --env-manager local -P config=scripts/counters_config.json "$@"
