#!/usr/bin/env bash
# Install Penstock and the packages pinned in requirements file $1 into .venv. Fast when nothing has changed.
set -euo pipefail
cd "$(dirname "$0")/.."
requirements=$1
venv=${VENV:-.venv}
stamp_file=$venv/.$(basename "$requirements" .txt)
log=$venv/setup.log
python=${PYTHON:-python3}

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
  echo "Penstock needs Python 3.11 or newer, but '$python' is $("$python" -V 2>&1 || echo missing). Choose another one: make PYTHON=python3.11 …" >&2
  exit 1
fi
checksum=$(cat requirements.txt requirements-docs.txt "$requirements" requirements-queen-2.txt requirements-canaille.txt requirements-moto.txt pyproject.toml tools/setup.sh tools/slim.sh | cksum)
[ -f "$stamp_file" ] && [ "$(cat "$stamp_file")" = "$checksum" ] && exit 0

if [ ! -x "$venv/bin/python" ]; then
  echo "Setup: creating a virtual environment in $venv"
  "$python" -m venv "$venv" || { echo "Python's venv module is incomplete. Install it (Debian: apt install python3-venv)." >&2; exit 1; }
fi
: > "$log"

pip() { "$venv/bin/python" -m pip "$@" --disable-pip-version-check >> "$log" 2>&1; }
uv() { "$venv/bin/uv" "$@" --system-certs --python "$venv/bin/python" >> "$log" 2>&1; }
fail() {
  reason=$(grep -oE 'invalid peer certificate.*|certificate verify failed[^(]*' "$log" | tail -1 | sed 's, *$,,' || true)
  reason=${reason:-$(grep -iE 'error' "$log" | tail -1 || true)}
  echo "Setup failed: ${reason:-no reason given}. Everything that was printed is in $log; docs/install.md explains proxies." >&2
  exit 1
}

# Before 24.2, pip trusts its own list of certificate authorities, which lacks that of a proxy that inspects TLS.
if ! "$venv/bin/python" -m pip config list | grep '\.cert=' >/dev/null; then
  for bundle in "${SSL_CERT_FILE:-}" /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt; do
    [ -r "$bundle" ] && export PIP_CERT="$bundle" && break
  done
fi

echo "Setup: installing the packages of $requirements (0.8 GB to download the first time; progress in $log)"
pip install uv==0.13.7 || true
# Without compiled bytecode, every start of a broker process compiles all its packages again where they cannot be written.
if ! { [ -x "$venv/bin/uv" ] && uv pip install --compile-bytecode -r "$requirements"; }; then
  echo "Setup: uv did not work, using the slower pip (reason in $log)"
  pip install -r "$requirements" || fail
fi
pip install --no-deps --no-build-isolation -e . || fail
if [ "$requirements" = requirements-dev.txt ]; then
  rm -rf "$venv/queen-mq-2" "$venv/canaille" "$venv/moto"
  pip install --no-deps --target "$venv/queen-mq-2" -r requirements-queen-2.txt || fail
  pip install --no-deps --target "$venv/canaille" -r requirements-canaille.txt || fail
  pip install --no-deps --target "$venv/moto" -r requirements-moto.txt || fail
fi
tools/slim.sh "$venv"
rm -f "$venv"/spark-classes*  # of the tests: it names the jars that were installed before
echo "$checksum" > "$stamp_file"
echo "Setup: done ($(du -sm "$venv" | cut -f1) MB in $venv)"
