#!/usr/bin/env bash
# What can be said of the Nix files without nixpkgs: with Debian's nix-bin, offline, and as any user.
# usage: check.sh DIRECTORY-OF-BINARIES
# NIXPKGS_LIB names the directory `lib` of nixpkgs; with it the modules and the recipes are evaluated, too.
set -euo pipefail
bin=$(realpath "$1")
cd "$(dirname "$0")/.."

work=$(mktemp -d)
# What Nix puts into a store cannot be written to, and so not removed.
trap 'chmod -R u+w "$work" && rm -rf "$work"' EXIT
home=$HOME
# A store of its own: nothing of the machine's is touched, and nothing can be fetched.
export NIX_REMOTE="local?root=$work/store" HOME=$work XDG_CACHE_HOME=$work/cache NIX_USER_CONF_FILES=/dev/null
export NIX_CONFIG='experimental-features = nix-command flakes
substitute = false
sandbox = false
build-users-group =
flake-registry =
warn-dirty = false'

skipped() { echo "SKIPPED $1: $2"; }
passed() { echo "ok: $*"; }
failed() {
    echo "FAILED: $*" >&2
    exit 1
}
evaluate() { # a file, and arguments: prints a string without its quotes
    nix-instantiate --eval --strict --json "$@" | python3 -c 'import json, sys; print(json.load(sys.stdin))'
}

command -v nix-instantiate >/dev/null || failed "nix-instantiate is missing: install nix-bin"

files=(flake.nix nix/*.nix nix/*/*.nix)
for file in "${files[@]}"; do
    nix-instantiate --parse "$file" >/dev/null || failed "$file does not parse"
done
passed "${#files[@]} files parse with $(nix-instantiate --version)"

evaluate nix/check/shape.nix >"$work/shape"
diff -u nix/check/shape.txt "$work/shape" || failed "the flake's outputs are others than nix/check/shape.txt says"
passed "the outputs have their names without nixpkgs"

python3 nix/check/lock.py flake.nix flake.lock || failed "flake.lock"
passed "flake.lock has the schema of version 7 and pins what flake.nix names"
if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
    nix flake metadata --no-update-lock-file --json . >"$work/metadata" || failed "Nix does not accept flake.lock"
    passed "Nix takes flake.lock as it is"
else
    skipped "flake.lock as Nix reads it" "this is no git checkout"
fi

# The programs say their keys when they are given one that is none.
unknown_keys() { # a program, a table or nothing: prints the keys of the file or of the table
    { [ -z "$2" ] || echo "[$2]"; echo '"?" = 0'; } >"$work/unknown.toml"
    { "$bin/$1" --config "$work/unknown.toml" --check 2>&1 || true; } |
        sed -n 's/.*known are:\{0,1\} //p' | tr -d ' ' | tr , '\n'
}
unknown_keys polymeter-agent "" | grep -vx limits >"$work/agent.keys"
unknown_keys polymeter-agent limits | sed 's/^/limits./' >>"$work/agent.keys"
unknown_keys polymeter-collector "" | grep -vx clock >"$work/collector.keys"
unknown_keys polymeter-collector clock | sed 's/^/clock./' >>"$work/collector.keys"
for daemon in agent collector; do
    [ -s "$work/$daemon.keys" ] || failed "polymeter-$daemon does not say its keys"
    evaluate nix/check/keys.nix --arg file "./nix/modules/$daemon-settings.nix" | sort >"$work/$daemon.options"
    sort "$work/$daemon.keys" | diff -u "$work/$daemon.options" - ||
        failed "nix/modules/$daemon-settings.nix (-) and polymeter-$daemon (+) have other keys"
    passed "polymeter-$daemon and its module have the same $(wc -l <"$work/$daemon.keys") keys"
done

if [ -z "${NIXPKGS_LIB:-}" ]; then
    skipped "evaluation of the modules and of the recipes" "NIXPKGS_LIB does not name the directory lib of nixpkgs"
else
    modules=(nix/check/modules.nix --arg nixpkgsLib "$(realpath "$NIXPKGS_LIB")")
    nix-instantiate --eval --strict --json --read-write-mode "${modules[@]}" >"$work/modules" || failed "the modules do not evaluate"
    # What a build of the system would run, with the programs and the store that are here.
    for script in $(python3 -c 'import json, sys; print(*json.load(open(sys.argv[1]))["scripts"])' "$work/modules"); do
        sed "s|/nix/store|$work/store/nix/store|g; s|/package/bin|$bin|g" "$work/store$script" >"$work/script"
        out=$work/accepted bash -e "$work/script" || failed "a program refuses what its module writes: $(cat "$work/script")"
    done
    python3 -c 'import json, sys; [print("ok:", fact) for fact in json.load(open(sys.argv[1]))["facts"]]' "$work/modules"
    passed "the programs accept the files that the modules write"

    nix-instantiate --eval --strict --json --read-write-mode nix/check/package.nix \
        --arg nixpkgsLib "$(realpath "$NIXPKGS_LIB")" >"$work/package" || failed "the recipes do not evaluate"
    src=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["src"])' "$work/package")
    HOME=$home cargo metadata --offline --locked --no-deps --format-version 1 --manifest-path "$work/store$src/Cargo.toml" \
        >/dev/null || failed "the source that the recipes take is not whole"
    passed "the recipes evaluate, and their source is a whole workspace"
fi

skipped "the packages, the checks and the virtual machines" "they need nixpkgs: \`nix flake check\`, see nix/README.md"
