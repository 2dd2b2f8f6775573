#!/usr/bin/env bash
# Make .venv hold what requirements file $1 pins, and Penstock itself. Quick when nothing changed.
set -euo pipefail
cd "$(dirname "$0")/.."
file=$1
venv=.venv
stamp=$venv/.$(basename "$file" .txt)
python=${PYTHON:-python3}

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
  echo "Penstock needs Python 3.11 or newer; '$python' is $("$python" -V 2>&1 || echo missing). Name another one: make PYTHON=python3.11 …" >&2
  exit 1
fi
want=$(cat requirements.txt "$file" pyproject.toml | cksum)
[ -f "$stamp" ] && [ "$(cat "$stamp")" = "$want" ] && exit 0

if [ ! -x $venv/bin/python ]; then
  echo "Setting up: a virtual environment in $venv"
  "$python" -m venv $venv || { echo "Python's venv module is not complete here (Debian: apt install python3-venv)." >&2; exit 1; }
fi
echo "Setting up: packages of $file (about 0.8 GB the first time, cached afterwards)"
$venv/bin/python -m pip install --quiet --disable-pip-version-check uv==0.13.7 || true
uv="$venv/bin/uv pip install --python $venv/bin/python"
if [ -x $venv/bin/uv ] && $uv -r "$file"; then :; else
  echo "Setting up: falling back to pip"
  $venv/bin/python -m pip install --disable-pip-version-check -r "$file"
fi
$venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
echo "$want" > "$stamp"
echo "Setting up: done"
