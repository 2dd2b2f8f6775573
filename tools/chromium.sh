#!/usr/bin/env bash
# Make sure a Chromium is there for the browser tests: an installed one, or Debian's when we are root.
set -uo pipefail
for name in chromium chromium-browser google-chrome google-chrome-stable; do
  command -v "$name" >/dev/null && exit 0
done
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "Setting up: Chromium for the browser tests"
  if (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium) >/dev/null 2>&1; then
    exit 0
  fi
fi
echo "NOTE: no Chromium here, so the browser tests are left out."
