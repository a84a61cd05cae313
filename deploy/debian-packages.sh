#!/bin/sh
# Unpack Debian packages, with all they depend on, below a folder. Nothing is installed, the machine's own
# package lists stay as they are, and Debian's signatures are checked.
#
#   deploy/debian-packages.sh SUITE FOLDER [--only PREFIX] PACKAGE...
#
# --only unpacks just the packages whose name begins so: the rest of a dependency tree is often a whole system.
set -eu
suite=$1 folder=$2
shift 2
only=
if [ "$1" = --only ]; then only=$2; shift 2; fi
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
for tool in apt-get dpkg-deb; do
  command -v "$tool" >/dev/null || { echo "this machine has no $tool" >&2; exit 1; }
done
[ -e "$keyring" ] || { echo "this machine has no Debian archive keyring" >&2; exit 1; }
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
apt=$folder/.apt
mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/none"
# An empty status file: nothing counts as installed already.
: >"$apt/status"
echo "deb [signed-by=$keyring] http://deb.debian.org/debian $suite main" >"$apt/sources.list"
cat >"$apt/apt.conf" <<CONF
Dir::Etc::sourcelist "$apt/sources.list";
Dir::Etc::sourceparts "$apt/none";
Dir::Etc::preferences "$apt/no-preferences";
Dir::Etc::preferencesparts "$apt/none";
Dir::State "$apt";
Dir::State::status "$apt/status";
Dir::State::Lists "$apt/lists";
Dir::Cache "$apt/cache";
APT::Sandbox::User "";
APT::Install-Recommends "false";
Acquire::Languages "none";
Acquire::Check-Valid-Until "false";
Acquire::Retries "2";
Acquire::http::Timeout "20";
CONF
export APT_CONFIG="$apt/apt.conf"
apt-get -q update
apt-get -q -y --download-only install "$@"
for archive in "$apt"/cache/archives/"$only"*.deb; do
  dpkg-deb -x "$archive" "$folder"
done
rm -rf "$apt"
