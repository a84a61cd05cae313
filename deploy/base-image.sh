#!/bin/sh
# Make a base image for the Dockerfile from Debian's packages, where no image registry can be reached. Needs root,
# debootstrap and a Docker engine; takes under a minute.
#
#   deploy/base-image.sh NAME [SUITE]        # then: docker build --build-arg BASE=NAME .
#
# DOCKER is the client's path, default docker.
set -eu
name=$1 suite=${2:-bookworm} docker=${DOCKER:-docker}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
debootstrap --variant=minbase --include=python3,python3-pip,python3-venv,ca-certificates "$suite" "$work/rootfs" \
  >"$work/log" 2>&1 || { tail -n 5 "$work/log" >&2; exit 1; }
# pip in the build must trust whom this machine trusts.
cp /etc/ssl/certs/ca-certificates.crt "$work/rootfs/etc/ssl/certs/"
rm -rf "$work"/rootfs/var/cache/apt/archives/*.deb "$work"/rootfs/var/lib/apt/lists/*
tar -C "$work/rootfs" -c . | "$docker" import \
  --change 'ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt' \
  --change 'ENV SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt' \
  --change 'CMD ["bash"]' - "$name"
