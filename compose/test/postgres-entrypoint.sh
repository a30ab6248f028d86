#!/bin/sh
# What the image `postgres` does with these variables, for a check without it.
set -e
bin=$(echo /usr/lib/postgresql/*/bin)
data=/var/lib/postgresql/data
if [ "$(id -u)" = 0 ]; then
  mkdir -p "$data"
  chown postgres:postgres "$data" /run/postgresql
  chmod 700 "$data"
  exec setpriv --reuid=postgres --regid=postgres --init-groups "$0" "$@"
fi
if [ ! -s "$data/PG_VERSION" ]; then
  umask 077
  printf '%s\n' "$POSTGRES_PASSWORD" >/tmp/password
  "$bin/initdb" -D "$data" -U "$POSTGRES_USER" --pwfile=/tmp/password \
    --auth-local=trust --auth-host=scram-sha-256
  rm /tmp/password
  echo "host all all all scram-sha-256" >>"$data/pg_hba.conf"
  "$bin/pg_ctl" -D "$data" -o "-c listen_addresses=''" -w start
  "$bin/createdb" -U "$POSTGRES_USER" -h /run/postgresql "$POSTGRES_DB"
  "$bin/pg_ctl" -D "$data" -w stop
fi
exec "$bin/postgres" -D "$data" -c "listen_addresses=*" -c unix_socket_directories=/run/postgresql
