#!/bin/bash
# Exit 0 when this container's process says that it is ready.
#
# A busy machine must not become busier by being looked at. So a check is a shell and no interpreter; it ends itself by
# `timeout` in the Dockerfile, long before the engine gives it up and starts another beside it; and once a check has
# succeeded, the next ones wait first, so that a healthy container is asked a few times a minute. An engine that has an
# interval for the start and one for later would do the same, but engines before 25 have one alone.
#
#   KEPLAB_HEALTH_PORT    the port of /readyz; 8081
#   KEPLAB_HEALTH_REST_S  seconds before a check after one that succeeded; 15
#   KEPLAB_HEALTH_MARK    the file that remembers the success; it is gone when the container starts anew
set -u
port=${KEPLAB_HEALTH_PORT:-8081} mark=${KEPLAB_HEALTH_MARK:-/tmp/.keplab-healthy}
[ -e "$mark" ] && sleep "${KEPLAB_HEALTH_REST_S:-15}"

unhealthy() {
  rm -f "$mark"
  echo "/readyz on port $port: $1"
  exit 1
}

exec 3<>"/dev/tcp/127.0.0.1/$port" || unhealthy "no connection"
printf 'GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3
read -r -t 10 -u 3 status || unhealthy "no answer"
case $status in
  "HTTP/1.1 200"*) : >"$mark" ;;
  *) unhealthy "${status%$'\r'}" ;;
esac
