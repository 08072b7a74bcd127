#!/bin/sh
# What the tests run and Python does not bring: a Redis server, nginx, openssl, curl and Chromium. Nothing to do where they are; else the
# distribution's packages. Without the rights to install them, Redis is unpacked into .tools/redis.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
target="$root/.tools/redis"

give_up() {
    echo "There is no $program, and $1." >&2
    echo "Install one with your system's package manager (apt-get, dnf, apk, brew: the package is $package)" >&2
    if [ "$program" = redis-server ]; then
        echo "or put a redis-server binary at $target/usr/bin/redis-server" >&2
    fi
    echo "then run this again." >&2
    exit 1
}

if [ "$(id -u)" -eq 0 ]; then
    as_root=""
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
    as_root="sudo -n"
else
    as_root="none"
fi

# Installs packages with apt-get, whose lists may be empty or old; fails if it cannot.
try_install() {
    $as_root apt-get install -y --no-install-recommends "$@" \
        || { $as_root apt-get update && $as_root apt-get install -y --no-install-recommends "$@"; }
}

# As try_install, but fails only without the rights to, and gives up otherwise.
apt_install() {
    command -v apt-get >/dev/null 2>&1 || give_up "this system has no apt-get to get it with"
    [ "$as_root" != none ] || return 1
    try_install "$@" || give_up "apt-get could not install it"
}

program=curl package=curl
if ! command -v curl >/dev/null 2>&1; then
    apt_install curl ca-certificates || give_up "installing it needs root or sudo"
fi

program=nginx package=nginx
if ! PATH="$PATH:/usr/sbin" command -v nginx >/dev/null 2>&1; then
    apt_install nginx || give_up "installing it needs root or sudo"
fi

program=openssl package=openssl
if ! command -v openssl >/dev/null 2>&1; then
    apt_install openssl || give_up "installing it needs root or sudo"
fi

program=chromium package=chromium
if ! command -v chromium-headless-shell >/dev/null 2>&1 && ! command -v chromium >/dev/null 2>&1 \
    && ! command -v chromium-browser >/dev/null 2>&1 && ! command -v google-chrome >/dev/null 2>&1; then
    # Debian has one without a window, which is smaller. Only lists that are there tell whether it has.
    if ! command -v apt-get >/dev/null 2>&1 || [ "$as_root" = none ] || ! try_install chromium-headless-shell; then
        apt_install chromium || give_up "installing it needs root or sudo"
    fi
fi

program=redis-server package="redis or redis-server"
if command -v redis-server >/dev/null 2>&1 || [ -x "$target/usr/bin/redis-server" ] || apt_install redis-server; then
    exit 0
fi

# Without root: the packages of the server and of the libraries that a slim system may lack.
packages="$target/packages"
mkdir -p "$packages"
cd "$packages"
apt-get download redis-server redis-tools || give_up "apt-get could not download it"
for library in libjemalloc2 liblzf1 liblua5.1-0 lua-cjson lua-bitop libatomic1; do
    apt-get download "$library" 2>/dev/null || true
done
for file in ./*.deb; do
    dpkg -x "$file" "$target"
done
# The server is a link into the tools' package; both are unpacked now.
libraries=$(find "$target/usr/lib" -name '*.so*' -exec dirname {} \; | sort -u | paste -sd: -)
LD_LIBRARY_PATH="$libraries" "$target/usr/bin/redis-server" --version >/dev/null || give_up "the unpacked one does not start"
