#!/bin/sh
# make_secrets.sh ACL SECRETS: generate a Redis password once. ACL/users.acl is for Redis (the password's hash only),
# SECRETS/okl_store is the setting OKL_STORE of the workers. If both exist, nothing is changed.
set -eu

acl=$1/users.acl
store=$2/okl_store
if [ -s "$acl" ] && [ -s "$store" ]; then
    exit 0
fi
umask 077
password=$(head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n')
hash=$(printf %s "$password" | sha256sum | cut -d ' ' -f 1)
# The workers can access the keys okl:*, but no command that could stop the server or read other data. `default` cannot
# connect, but needs the same rights: at its start Redis reads its append-only file as this user, and leaves out every
# transaction that has a command the user may not run. `probe` is for the health check.
rights='~okl:* resetchannels +@all -@admin -@dangerous +info +config|get'
cat >"$acl.new" <<END
user default off $rights
user okl on #$hash $rights
user probe on nopass resetkeys resetchannels -@all +ping
END
printf 'redis://okl:%s@%s/0\n' "$password" "${OKL_REDIS_ADDRESS:-redis:6379}" >"$store.new"
if [ "$(id -u)" -eq 0 ]; then
    chown "${OKL_REDIS_USER:-999}" "$acl.new"
    chown "${OKL_USER:-10001}" "$store.new"
fi
mv "$acl.new" "$acl"
mv "$store.new" "$store"
