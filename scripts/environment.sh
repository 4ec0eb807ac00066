# Sourced by the other scripts: an environment with dpprof installed. Uses the active one, else makes .venv.
# Installs only when pyproject.toml changed. EXTRAS names what is needed beside the package, e.g. "[test]".
if [ -z "${VIRTUAL_ENV:-}${CONDA_PREFIX:-}" ]; then
    [ -x .venv/bin/python ] || python3 -m venv .venv || exit 1
    . .venv/bin/activate
fi
stamp="${VIRTUAL_ENV:-$CONDA_PREFIX}/.dpprof-installed"
wanted="$PWD $(cksum < pyproject.toml)"
if ! grep -qsxF -e "$wanted ${EXTRAS:-}" -e "$wanted [test]" "$stamp"; then
    echo "Installing dpprof and what it needs (once) ..."
    python -m pip install --quiet --editable ".${EXTRAS:-}" || exit 1
    echo "$wanted ${EXTRAS:-}" > "$stamp"
fi
export MLFLOW_DISABLE_TELEMETRY="${MLFLOW_DISABLE_TELEMETRY:-true}"
