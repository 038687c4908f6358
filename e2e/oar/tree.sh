#!/bin/sh
# Makes the Debian tree with OAR 2.5, its database, server and node, for run.sh: e2e/oar/tree.sh TARBALL. Needs mmdebstrap.
set -eu
packages=oar-server,oar-server-pgsql,oar-node,oar-user,oar-user-pgsql,postgresql,openssh-server,sudo,procps,iproute2,libzmq5,netbase
mmdebstrap --quiet --variant=minbase --include="$packages" bookworm "$1.new.tar"
mv "$1.new.tar" "$1"
