#!/usr/bin/env bash
# Install Penstock and the packages pinned in requirements file $1 into .venv. Fast when nothing has changed.
set -euo pipefail
cd "$(dirname "$0")/.."
requirements=$1
venv=${VENV:-.venv}
stamp_file=$venv/.$(basename "$requirements" .txt)
python=${PYTHON:-python3}

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
  echo "Penstock needs Python 3.11 or newer, but '$python' is $("$python" -V 2>&1 || echo missing). Choose another one: make PYTHON=python3.11 …" >&2
  exit 1
fi
checksum=$(cat requirements.txt "$requirements" requirements-queen-2.txt pyproject.toml | cksum)
[ -f "$stamp_file" ] && [ "$(cat "$stamp_file")" = "$checksum" ] && exit 0

if [ ! -x $venv/bin/python ]; then
  echo "Setup: creating a virtual environment in $venv"
  "$python" -m venv $venv || { echo "Python's venv module is incomplete. Install it (Debian: apt install python3-venv)." >&2; exit 1; }
fi
echo "Setup: installing the packages of $requirements (about 0.8 GB the first time, cached afterwards)"
$venv/bin/python -m pip install --quiet --disable-pip-version-check uv==0.13.7 || true
# Without compiled bytecode, every start of a broker process compiles all its packages again where they cannot be written.
uv="$venv/bin/uv pip install --compile-bytecode --python $venv/bin/python"
if [ -x $venv/bin/uv ] && $uv -r "$requirements"; then :; else
  echo "Setup: uv failed, using pip"
  $venv/bin/python -m pip install --disable-pip-version-check -r "$requirements"
fi
$venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
if [ "$requirements" = requirements-dev.txt ]; then
  rm -rf "$venv/queen-mq-2"
  $venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --target "$venv/queen-mq-2" -r requirements-queen-2.txt
fi
echo "$checksum" > "$stamp_file"
echo "Setup: done"
