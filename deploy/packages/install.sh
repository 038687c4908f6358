#!/bin/sh
# Installs the programs and their files: deploy/packages/install.sh PROGRAMS, the directory that contains the three programs.
# DESTDIR is put before every path, as packages need it; PREFIX is /usr/local, and SYSCONFDIR is /etc unless they are set.
# Existing configuration files are kept. No user is created, and no service is enabled or started.
set -eu
umask 022
here=$(dirname "$(readlink -f "$0")")
deploy=$(dirname "$here")
source=$(dirname "$deploy")
programs=$1
PREFIX=${PREFIX:-/usr/local}
SYSCONFDIR=${SYSCONFDIR:-/etc}
root=${DESTDIR:-}

# put MODE FILE TARGET: copies a file, in which the paths of the programs are those of this installation.
put() {
    install -d "$root$(dirname "$3")"
    sed -e "s|/usr/bin/polymeter|$PREFIX/bin/polymeter|g" -e "s|/usr/libexec/polymeter|$PREFIX/libexec/polymeter|g" \
        -e "s|/etc/polymeter|$SYSCONFDIR/polymeter|g" "$2" >"$root$3.new"
    chmod "$1" "$root$3.new"
    mv "$root$3.new" "$root$3"
}
# configure FILE TARGET: as put, but keeps an existing file and writes the new one beside it.
configure() {
    if [ -z "$root" ] && [ -e "$2" ]; then
        put 644 "$1" "$2.example"
    else
        put 644 "$1" "$2"
    fi
}

for program in polymeter polymeter-agent polymeter-collector; do
    install -D -m 755 "$programs/$program" "$root$PREFIX/bin/$program"
done

# The library for instrumented programs, and what they are built with.
library=libpolymeter_regions.so
regions=$source/node-agent/regions
install -D -m 644 "$programs/$library" "$root$PREFIX/lib/$library.1"
ln -sf "$library.1" "$root$PREFIX/lib/$library"
for file in polymeter/polymeter.h polymeter/likwid/likwid.h polymeter/likwid/likwid-marker.h; do
    install -D -m 644 "$regions/include/$file" "$root$PREFIX/include/$file"
done
for file in polymeter_regions.f90 polymeter_regions.py; do
    install -D -m 644 "$regions/share/$file" "$root$PREFIX/share/polymeter/regions/$file"
done

pages=$(mktemp -d)
trap 'rm -rf "$pages"' EXIT
"$programs/polymeter" man --out "$pages"
for page in "$pages"/*; do
    install -D -m 644 "$page" "$root$PREFIX/share/man/man${page##*.}/${page##*/}"
done
completion() {
    install -d "$root$(dirname "$2")"
    "$programs/polymeter" completions "$1" >"$root$2"
}
completion bash "$PREFIX/share/bash-completion/completions/polymeter"
completion zsh "$PREFIX/share/zsh/vendor-completions/_polymeter"
completion fish "$PREFIX/share/fish/vendor_completions.d/polymeter.fish"

for service in polymeter-agent polymeter-collector; do
    put 644 "$deploy/systemd/$service.service" "$PREFIX/lib/systemd/system/$service.service"
done
put 644 "$deploy/systemd/polymeter.sysusers" "$PREFIX/lib/sysusers.d/polymeter.conf"
for file in "$deploy"/systemd/drop-ins/*.conf; do
    put 644 "$file" "$PREFIX/share/polymeter/drop-ins/${file##*/}"
done

for name in agent collector client; do
    configure "$deploy/$name.toml" "$SYSCONFDIR/polymeter/$name.toml"
done
# The keys of the agents that may connect; see docs/how-to/keys.md.
install -d "$root$SYSCONFDIR/polymeter/agents.d"

for scheduler in slurm oar pbs flux lsf; do
    for script in "$deploy/$scheduler"/*; do
        put 755 "$script" "$PREFIX/libexec/polymeter/$scheduler/${script##*/}"
    done
done
(cd "$deploy/grafana" && find . -type f) | while read -r file; do
    put 644 "$deploy/grafana/$file" "$PREFIX/share/polymeter/grafana/$file"
done
put 644 "$deploy/prometheus/polymeter-alerts.yml" "$PREFIX/share/polymeter/prometheus/polymeter-alerts.yml"

for name in README.md CHANGELOG.md LICENSE; do
    install -D -m 644 "$source/$name" "$root$PREFIX/share/doc/polymeter/$name"
done
# The licences of the libraries in the programs, if they were collected.
for name in THIRD-PARTY-LICENSES.txt sbom.cdx.json; do
    [ ! -e "$programs/$name" ] || install -D -m 644 "$programs/$name" "$root$PREFIX/share/doc/polymeter/$name"
done
