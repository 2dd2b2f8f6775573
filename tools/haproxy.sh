#!/usr/bin/env bash
# Find HAProxy for the test of brokers on several hosts; as root on Debian, install it if there is none.
set -uo pipefail
PATH="$PATH:/usr/sbin"
command -v haproxy >/dev/null && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "Setup: installing HAProxy for its test"
  # The package would start a server of its own.
  if (apt-get update -qq && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq haproxy) >/dev/null 2>&1; then
    exit 0
  fi
fi
echo "NOTE: HAProxy is not installed, so the test of brokers on several hosts is skipped."
