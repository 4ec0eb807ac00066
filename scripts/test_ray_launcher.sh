#!/usr/bin/env bash
# The tests of examples/ray_launcher, on Ray clusters of this machine, with the package installed beside the
# environment. Arguments go to pytest.
cd "$(dirname "$0")/.." || exit 1
EXTRAS="[test]"
. scripts/environment.sh
place="$(mktemp -d)" || exit 1
trap 'rm -rf "$place"' EXIT
cp -r examples/ray_launcher "$place/source" || exit 1
python -m pip install --quiet --no-index --no-deps --no-build-isolation --target "$place/site" "$place/source" || exit 1
export PYTHONPATH="$place/site${PYTHONPATH:+:$PYTHONPATH}"
# What the clusters ask for; else Ray makes a token up, and keeps it in the home folder.
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN="$(python -c 'import secrets; print(secrets.token_hex(32))')"
python -m pytest -n 2 --dist loadfile examples/ray_launcher "$@"
