#!/usr/bin/env bash
# Gathers what a machine with torch lacks to run `run.py`: wheels of Linux on x86-64, for the Python version given
# (3.12), in `wheels/`, which git ignores. Measuring needs Opacus and opt_einsum; the tests read records with
# pydantic.
set -e
cd "$(dirname "$0")"
version="${1:-3.12}"
packages="$(grep -E '^(opacus|opt[_-]einsum|pydantic|pydantic[_-]core|annotated-types|typing-inspection)==' ../../constraints.txt)"
rm -rf wheels
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --implementation cp \
    --python-version "$version" --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
    --dest wheels $packages
du -h wheels/*
size="$(du -sm wheels | cut -f1)"
[ "$size" -le 40 ] || { echo "wheels/ has $size MiB, more than 40"; exit 1; }
