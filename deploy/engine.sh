#!/bin/sh
# Have a Docker engine answer on a Debian machine without an init system, as CI's are. Needs root.
#
#   deploy/engine.sh [FOLDER]     # for the engine's log and pid; default /tmp/keplab-engine
set -eu
folder=${1:-/tmp/keplab-engine}
# By its path: what comes first on the PATH may be something else by the same name.
docker=/usr/bin/docker
if [ -x "$docker" ] && "$docker" info >/dev/null 2>&1; then exit 0; fi
if ! command -v dockerd >/dev/null || ! command -v debootstrap >/dev/null; then
  apt-get -q update
  # Recommended packages include some that the engine does not go together with.
  apt-get -q install -y --no-install-recommends docker.io debootstrap iproute2 iptables
fi
mkdir -p "$folder"
setsid dockerd >"$folder/dockerd.log" 2>&1 &
echo $! >"$folder/dockerd.pid"
for _ in $(seq 150); do
  if "$docker" info >/dev/null 2>&1; then exit 0; fi
  sleep 0.2
done
echo "dockerd does not answer: $(tail -n 1 "$folder/dockerd.log")" >&2
exit 1
