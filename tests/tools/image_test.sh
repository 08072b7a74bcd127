#!/bin/sh
# Builds the image with buildah, without a Docker engine, and runs it as one should: as nobody, with a root file system that
# cannot be written. Prints what it weighs above its base and how long it takes to start. Needs root, buildah and curl.
#
#   BASE          a folder with the base's file system, where no registry of images can be reached: a stand-in, such as
#                 debootstrap --variant=minbase --include=python3,python3-venv trixie FOLDER
#   BUILDAH_ARGS  further arguments of `buildah bud`, such as --volume for certificates
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
store="--root $work/storage --runroot $work/run --storage-driver vfs"
server=""
clean() {
    if [ -n "$server" ]; then kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; fi
    buildah $store rm --all >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap clean EXIT INT TERM

base=docker.io/library/$(sed -n 's/^FROM \([^ ]*\)$/\1/p' "$root/Dockerfile")
if [ -n "${BASE:-}" ]; then
    container=$(buildah $store from scratch)
    buildah $store add -q "$container" "$BASE" /
    buildah $store commit -q "$container" "$base" >/dev/null
    buildah $store rm "$container" >/dev/null
fi
buildah $store bud -q --isolation chroot --layers=false --pull=never ${BUILDAH_ARGS:-} -t okl "$root" >/dev/null

weight() {
    mounted=$(buildah $store mount "$(buildah $store from --pull=never "$1")")
    du -s --block-size=1M --apparent-size "$mounted" | cut -f 1
}
above=$(($(weight okl) - $(weight "$base")))
echo "image: $above MB above its base"

rootfs=$(buildah $store mount "$(buildah $store from --pull=never okl)")
user=$(sed -n 's/^USER //p' "$root/Dockerfile")
port=${PORT:-8123}
mkdir "$work/data"
chown "$user" "$work/data"
# What `docker run --read-only --tmpfs /tmp -v data:/var/lib/okl` does.
cat >"$work/run.sh" <<END
set -eu
mount --bind $rootfs $rootfs
mount -t tmpfs tmpfs $rootfs/tmp
mount --bind $work/data $rootfs/var/lib/okl
mount -t proc proc $rootfs/proc
mount --rbind /dev $rootfs/dev
mount -o remount,ro,bind $rootfs
exec chroot --userspec=$user $rootfs env -i PATH=/opt/okl/bin:/usr/local/bin:/usr/bin:/bin OPENBLAS_NUM_THREADS=1 \
    OKL_HOST=127.0.0.1 OKL_PORT=$port OKL_LOG_FORMAT=json sh -c '
        id -u; if touch /opt/okl/x 2>/dev/null; then echo "the root file system can be written" >&2; exit 1; fi
        cd /var/lib/okl; exec okl serve'
END
began=$(date +%s%N)
unshare --mount sh "$work/run.sh" >"$work/log" 2>&1 &
server=$!
until curl -sf "http://127.0.0.1:$port/healthz" >/dev/null; do
    if ! kill -0 "$server" 2>/dev/null; then cat "$work/log" >&2; server=""; exit 1; fi
    sleep 0.05
done
took=$((($(date +%s%N) - began) / 1000000))
# Fields 14 and 15 are ticks of CPU, as a rule hundredths of a second.
cpu=$(sed 's/.*) //' "/proc/$server/stat" | awk '{print ($12 + $13) * 10}')
echo "start: $took ms, $cpu ms of CPU, as user $(sed -n 1p "$work/log"), on a root file system that cannot be written"

okl="http://127.0.0.1:$port"
curl -sf "$okl/sessions" --json '{"name": "s", "labels": ["no", "yes"]}' >/dev/null
for number in 1 2 3 4 5; do
    curl -sf "$okl/predict" --json "{\"session\": \"s\", \"x\": [0.$number, 1.0], \"id\": \"p$number\"}" >/dev/null
    curl -sf "$okl/update" --json "{\"session\": \"s\", \"id\": \"p$number\", \"y\": \"yes\"}" >"$work/told"
done
grep -q '"t":5' "$work/told"
curl -sf "$okl/" >/dev/null
test -s "$work/data/data/okl.sqlite3"
kill "$server"
wait "$server" && code=0 || code=$?
server=""
echo "rounds: 5 of 5; stopped with $code"
test "$code" -eq 0
test "$above" -lt 250
