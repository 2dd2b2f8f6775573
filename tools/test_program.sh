#!/usr/bin/env bash
# Find a program that tests use and no wheel contains; as root on Debian, install it if there is none.
set -uo pipefail
PATH="$PATH:/usr/sbin"

case ${1:-} in
  chromium) programs="chromium chromium-browser google-chrome google-chrome-stable" tests="the browser tests" ;;
  pgbouncer) programs=pgbouncer tests="the test that refuses it" ;;
  haproxy) programs=haproxy tests="the test of brokers on several hosts" ;;
  *) echo "Usage: tools/test_program.sh chromium|pgbouncer|haproxy" >&2; exit 2 ;;
esac
for program in $programs; do
  command -v "$program" >/dev/null && exit 0
done
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "Setup: installing $1 for $tests"
  # Some packages would start a server of their own. Another installation may be running.
  if (apt-get update -qq && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq -o DPkg::Lock::Timeout=300 "$1") >/dev/null 2>&1; then
    exit 0
  fi
fi
echo "NOTE: $1 is not installed: $tests will be skipped."
