# Sourced by the other scripts: an environment with dpprof installed. Uses the active one, else makes .venv.
# Installs only when pyproject.toml changed. First argument: the extras to install, e.g. "[test]".
extras="${1:-}"
if [ -z "${VIRTUAL_ENV:-}${CONDA_PREFIX:-}" ]; then
    [ -x .venv/bin/python ] || python3 -m venv .venv || exit 1
    . .venv/bin/activate
fi
stamp="${VIRTUAL_ENV:-$CONDA_PREFIX}/.dpprof-installed"
wanted="$PWD $extras $(cksum < pyproject.toml)"
if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
    echo "Installing dpprof and what it needs (once) ..."
    python -m pip install --quiet --editable ".$extras" || exit 1
    printf '%s' "$wanted" > "$stamp"
fi
export MLFLOW_DISABLE_TELEMETRY="${MLFLOW_DISABLE_TELEMETRY:-true}"
