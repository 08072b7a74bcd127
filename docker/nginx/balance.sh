#!/bin/sh
# Runs nginx in front of the workers that the names in OKL_WORKERS resolve to, and reloads it when they change.
#
# nginx's own `server NAME resolve` gives all addresses of a name one place in the ring of `hash ... consistent` and
# alternates between them, so no session would stay with a worker. The script therefore writes a line for each address.
#
#   OKL_WORKERS        name:port, several separated by spaces; IPv4                   okl:8000
#   OKL_LISTEN         where to listen, in the syntax of nginx's `listen`             8080
#   OKL_LISTEN_TLS     the same with TLS; if it is set, tls.crt and tls.key must      8443, if the two exist
#                      exist when the script starts
#   OKL_TLS_DIR        folder of these two; checked as often as the names             /run/tls
#   OKL_LOOK_EVERY_S   seconds between two checks                                     2
#   OKL_PROCESSES      nginx worker processes; each uses at most one core             2
#   OKL_RUN_DIR        a writable folder                                              /tmp/nginx
set -eu

here=$(cd "$(dirname "$0")" && pwd)
run=${OKL_RUN_DIR:-/tmp/nginx}
tls=${OKL_TLS_DIR:-/run/tls}
PATH=$PATH:/usr/sbin

workers() {
    for worker in ${OKL_WORKERS:-okl:8000}; do
        getent ahostsv4 "${worker%:*}" | cut -d ' ' -f 1 | sort -u \
            | sed "s/.*/    server &:${worker##*:} max_fails=2 fail_timeout=2s;/"
    done | sort
}

# Checksum of the certificate, to detect a new one: nginx reads it only when it reloads.
certificate() {
    if [ -r "$tls/tls.crt" ] && [ -r "$tls/tls.key" ]; then
        cat "$tls/tls.crt" "$tls/tls.key" | cksum
    fi
}

write() {
    {
        echo "upstream workers {"
        echo "    zone workers 256k;"
        echo "    hash \$ring_key consistent;"
        echo "$servers"
        # The service closes connections that are idle for 5 s.
        echo "    keepalive 64;"
        echo "    keepalive_timeout 4s;"
        echo "}"
    } >"$run/workers.conf"
    # `auto` means one process per core of the machine, however few a container may use: 128 take 260 MB, and twice that
    # while a reload lets the old ones end.
    echo "worker_processes ${OKL_PROCESSES:-2};" >"$run/processes.conf"
    echo "listen ${OKL_LISTEN:-8080};" >"$run/listen.conf"
    if [ -n "$certified" ]; then
        echo "listen ${OKL_LISTEN_TLS:-8443} ssl; ssl_certificate $tls/tls.crt; ssl_certificate_key $tls/tls.key;" \
            "ssl_protocols TLSv1.2 TLSv1.3; ssl_session_cache shared:tls:4m; ssl_session_tickets off;"
    fi >"$run/tls.conf"
}

certified=$(certificate)
if [ -n "${OKL_LISTEN_TLS:-}" ] && [ -z "$certified" ]; then
    echo "no TLS: $tls/tls.crt or $tls/tls.key is missing, unreadable, or a link to a file that is not mounted" >&2
    exit 1
fi
mkdir -p "$run"
cp "$here/nginx.conf" "$run/nginx.conf"
servers=$(workers)
until [ -n "$servers" ]; do
    echo "no address of ${OKL_WORKERS:-okl:8000} yet" >&2
    sleep 1
    servers=$(workers)
done
write
if [ "${1:-}" = test ]; then
    exec nginx -p "$run" -c "$run/nginx.conf" -e stderr -t
fi

nginx -p "$run" -c "$run/nginx.conf" -e stderr -g 'daemon off;' &
nginx=$!
# QUIT lets running requests finish.
trap 'kill -QUIT $nginx 2>/dev/null || true' TERM INT QUIT
while kill -0 "$nginx" 2>/dev/null; do
    sleep "${OKL_LOOK_EVERY_S:-2}" &
    wait $! || true
    # Ignore an empty result: a name server that is briefly unavailable must not stop a running service.
    found=$(workers)
    certified_now=$(certificate)
    if [ -n "$found" ] && [ "$found$certified_now" != "$servers$certified" ]; then
        servers=$found certified=$certified_now
        write
        kill -HUP "$nginx"
    fi
done
wait "$nginx"
