#!/usr/bin/env bash
# The default sweep, on a machine with nothing but Python 3.11. Arguments go to `mlflow run`:
#     scripts/run_profiling.sh -P batch_sizes=2 -P seq_lens=128
cd "$(dirname "$0")/.." || exit 1
. scripts/environment.sh
exec mlflow run . -e sweep --env-manager local "$@"
