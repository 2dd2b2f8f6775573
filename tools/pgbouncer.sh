#!/usr/bin/env bash
# Find PgBouncer for the test that refuses it; as root on Debian, install it if there is none.
set -uo pipefail
PATH="$PATH:/usr/sbin"
command -v pgbouncer >/dev/null && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "Setup: installing PgBouncer for its test"
  # The package would start a server of its own.
  if (apt-get update -qq && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq pgbouncer) >/dev/null 2>&1; then
    exit 0
  fi
fi
echo "NOTE: PgBouncer is not installed, so its test is skipped."
