#!/usr/bin/env bash
# Does a training job need more GPU memory with another version of a package? Exit code 4: more than 2 % more.
#
#     examples/ci/memory.sh transformers==5.4.0 transformers==5.24.0 --workload huggingface:gpt2 --target A100-40GB
#
# The first two arguments are requirements for pip, before and now; the others are options of `dpprof estimate`.
# Needs no GPU. Run it in an environment that may change: the second version stays installed.
set -eu
[ $# -ge 2 ] || { sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2; }
before=$1 now=$2
shift 2
runs=$(mktemp -d)
trap 'rm -rf "$runs"' EXIT
for side in before now; do
    python -m pip install --quiet "${!side}"
    dpprof estimate --runs-dir "$runs" --sweep-name "$side" "$@"
done
dpprof compare "$runs/now" --baseline "$runs/before" --fail-above 2% --output memory.html
