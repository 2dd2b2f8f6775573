#!/usr/bin/env bash
# Find a Chromium for the browser tests; as root on Debian, install one if there is none.
set -uo pipefail
for name in chromium chromium-browser google-chrome google-chrome-stable; do
  command -v "$name" >/dev/null && exit 0
done
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "Setup: installing Chromium for the browser tests"
  if (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium) >/dev/null 2>&1; then
    exit 0
  fi
fi
echo "NOTE: Chromium is not installed, so the browser tests are skipped."
