#!/bin/sh
# A Redis server for the tests: nothing to do where there is one; else the distribution's package, unpacked into
# .tools/redis where it cannot be installed for want of rights.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
target="$root/.tools/redis"

if command -v redis-server >/dev/null 2>&1 || [ -x "$target/usr/bin/redis-server" ]; then
    exit 0
fi

give_up() {
    echo "There is no redis-server, and $1." >&2
    echo "Install one with your system's package manager (apt-get, dnf, apk, brew: the package is redis or redis-server)" >&2
    echo "or put a redis-server binary at $target/usr/bin/redis-server, then run this again." >&2
    exit 1
}

command -v apt-get >/dev/null 2>&1 || give_up "this system has no apt-get to get it with"

if [ "$(id -u)" -eq 0 ]; then
    as_root=""
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
    as_root="sudo -n"
else
    as_root="none"
fi

if [ "$as_root" != none ]; then
    $as_root apt-get install -y --no-install-recommends redis-server \
        || { $as_root apt-get update && $as_root apt-get install -y --no-install-recommends redis-server; } \
        || give_up "apt-get could not install it"
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
for package in ./*.deb; do
    dpkg -x "$package" "$target"
done
# The server is a link into the tools' package; both are unpacked now.
libraries=$(find "$target/usr/lib" -name '*.so*' -exec dirname {} \; | sort -u | paste -sd: -)
LD_LIBRARY_PATH="$libraries" "$target/usr/bin/redis-server" --version >/dev/null || give_up "the unpacked one does not start"
