# Sourced by the other scripts: an environment with dpprof installed. Uses the active one, and keeps the versions
# there that pyproject.toml allows; else makes .venv with the exact versions of constraints.txt. LOCKED=1 takes
# these in an active environment too. EXTRAS names what is needed beside the package, e.g. "[test]".
# Installs only when one of the two files changed.
if [ -z "${VIRTUAL_ENV:-}${CONDA_PREFIX:-}" ]; then
    [ -x .venv/bin/python ] || python3 -m venv .venv || exit 1
    . .venv/bin/activate
    LOCKED=1
fi
stamp="${VIRTUAL_ENV:-$CONDA_PREFIX}/.dpprof-installed"
wanted="$PWD ${LOCKED:+locked} $(cat pyproject.toml constraints.txt | cksum)"
if ! grep -qsxF -e "$wanted ${EXTRAS:-}" -e "$wanted [test]" "$stamp"; then
    echo "Installing dpprof and what it needs (once) ..."
    python -m pip install --quiet --editable ".${EXTRAS:-}" ${LOCKED:+--constraint constraints.txt} || exit 1
    echo "$wanted ${EXTRAS:-}" > "$stamp"
fi
export MLFLOW_DISABLE_TELEMETRY="${MLFLOW_DISABLE_TELEMETRY:-true}"
