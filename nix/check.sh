#!/usr/bin/env bash
# Checks the Nix files without nixpkgs: with Debian's nix-bin, offline, as any user.
# usage: check.sh DIRECTORY-OF-BINARIES
# NIXPKGS_LIB names the directory `lib` of nixpkgs; with it the modules, the recipes and all outputs are evaluated, too.
set -euo pipefail
bin=$(realpath "$1")
cd "$(dirname "$0")/.."

work=$(mktemp -d)
# Files in a Nix store are read-only and must be made writable before they are removed.
trap 'chmod -R u+w "$work" && rm -rf "$work"' EXIT
home=$HOME
# A separate store: the machine's own store is not modified, and downloads are disabled.
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
evaluate() { # FILE [ARGUMENT...]: prints a string without its quotes
    nix-instantiate --eval --strict --json "$@" | python3 -c 'import json, sys; print(json.load(sys.stdin))'
}

command -v nix-instantiate >/dev/null || failed "nix-instantiate is missing: install nix-bin"

files=(flake.nix nix/*.nix nix/*/*.nix)
for file in "${files[@]}"; do
    nix-instantiate --parse "$file" >/dev/null || failed "$file does not parse"
done
passed "${#files[@]} files parse with $(nix-instantiate --version)"

evaluate nix/check/shape.nix >"$work/shape"
diff -u nix/check/shape.txt "$work/shape" || failed "the flake's outputs differ from nix/check/shape.txt"
passed "the outputs have their names without nixpkgs"

python3 nix/check/lock.py flake.nix flake.lock || failed "flake.lock"
passed "flake.lock has the schema of version 7 and pins what flake.nix names"
git=$(git rev-parse --show-toplevel 2>/dev/null || true)
if [ -n "$git" ]; then
    nix flake metadata --no-update-lock-file --json . >"$work/metadata" || failed "Nix does not accept flake.lock"
    passed "Nix accepts flake.lock unchanged"
else
    skipped "flake.lock as Nix reads it" "not a git checkout"
fi

# The programs list their keys in the error message for an unknown one.
unknown_keys() { # PROGRAM TABLE: prints the keys of the table, or of the file if TABLE is empty
    { [ -z "$2" ] || echo "[$2]"; echo '"?" = 0'; } >"$work/unknown.toml"
    { "$bin/$1" --config "$work/unknown.toml" --check 2>&1 || true; } |
        sed -n 's/.*known keys are //p' | tr -d ' ' | tr , '\n'
}
for daemon in agent collector; do
    unknown_keys "polymeter-$daemon" "" | while read -r key; do
        inner=$(unknown_keys "polymeter-$daemon" "$key")
        sed "s/^/$key${inner:+.}/" <<<"$inner"
    done >"$work/$daemon.keys"
    [ -s "$work/$daemon.keys" ] || failed "polymeter-$daemon does not list its keys"
    evaluate nix/check/keys.nix --argstr program "$daemon" | sort >"$work/$daemon.options"
    sort "$work/$daemon.keys" | diff -u "$work/$daemon.options" - ||
        failed "nix/modules/keys.json (-) and polymeter-$daemon (+) have other keys"
    passed "polymeter-$daemon and its module have the same $(wc -l <"$work/$daemon.keys") keys"
done

evaluate nix/check/source.nix >"$work/source.files"
mkdir "$work/source"
xargs -d '\n' cp -r --parents -t "$work/source" <"$work/source.files" || failed "nix/source.nix names what does not exist"
HOME=$home cargo metadata --offline --locked --no-deps --format-version 1 --manifest-path "$work/source/Cargo.toml" \
    >/dev/null || failed "nix/source.nix lacks a part of the workspace"
passed "the recipes' source has every crate of the workspace"

evaluated() { # FILE: prints the value of a file in nix/check that requires nixpkgs' lib, as JSON
    nix-instantiate --eval --strict --json --read-write-mode "$1" --arg nixpkgsLib "$(realpath "$NIXPKGS_LIB")"
}
field() { # FILE KEY: prints the string, or the strings of the list, one per line
    python3 -c 'import json, sys
value = json.load(open(sys.argv[1]))[sys.argv[2]]
print(value if isinstance(value, str) else "\n".join(value))' "$@"
}

check_modules() {
    local script
    evaluated nix/check/modules.nix >"$work/modules" || failed "the modules do not evaluate"
    # Runs the scripts of a system build, with the programs and the store of this check.
    for script in $(field "$work/modules" scripts); do
        sed "s|/nix/store|$work/store/nix/store|g; s|/package/bin|$bin|g" "$work/store$script" >"$work/script"
        out=$work/accepted bash -e "$work/script" || failed "a program refuses what its module writes: $(cat "$work/script")"
    done
    field "$work/modules" facts | sed 's/^/ok: /'
    passed "the programs accept the files that the modules write"
}

check_units() { # checks that systemd accepts every key and value
    mkdir "$work/units"
    echo '[Unit]' >"$work/units/postgresql.target"
    python3 nix/check/units.py "$work/modules" "$work/units"
    sed -i "s|/package/bin|$bin|g; s|/coreutils/bin|/bin|g" "$work"/units/*.service
    systemd-analyze verify "$work"/units/*.service >"$work/faults" 2>&1 || true
    [ ! -s "$work/faults" ] || failed "systemd does not accept the units: $(cat "$work/faults")"
    passed "$(systemd-analyze --version | head -n 1) accepts the units"
}

check_recipes() {
    local src
    evaluated nix/check/package.nix >"$work/package" || failed "the recipes do not evaluate"
    src=$work/store$(field "$work/package" src)
    HOME=$home cargo metadata --offline --locked --no-deps --format-version 1 --manifest-path "$src/Cargo.toml" \
        >/dev/null || failed "the source that the recipes take is not whole"
    passed "the recipes evaluate, and their source is a whole workspace"
}

check_installed() { # runs the recipe's script with this program and stand-ins for the functions of nixpkgs
    mkdir -p "$work/installed/bin"
    ln -s "$bin/polymeter" "$work/installed/bin"
    cat >"$work/install" <<'END'
installManPage() { for page; do install -D -t "$out/man${page##*.}" "$page"; done; }
installShellCompletion() { [ "$1 $2" = "--cmd polymeter" ] && install -D -t "$out/${3#--}" "$4"; }
END
    field "$work/package" postInstall >>"$work/install"
    (cd "$work" && out=$work/installed bash -e install) || failed "manual pages and completions are not installed"
    (cd "$work/installed" && wc -c man1/polymeter-run.1 man8/polymeter-{agent,collector}.8 {bash,fish,zsh}/polymeter.*) \
        >"$work/sizes" || failed "a manual page or a completion is missing"
    ! grep -w ' 0' "$work/sizes" || failed "it is empty"
    bash -n "$work/installed/bash/polymeter.bash" || failed "bash does not read its completions"
    passed "manual pages and completions are written when the package is built"
}

check_benchmarks() { # checks that the package has the benchmarks that the experiments run
    local file benchmark
    field "$work/package" benchmarks >"$work/benchmarks"
    for file in benches/experiments/overhead-*.toml; do
        benchmark=$(sed -n 's/^command = .*"\([^"]*\.x\)"\]$/\1/p' "$file")
        [ -z "$benchmark" ] || grep -qxF "$benchmark" "$work/benchmarks" ||
            failed "nix/npb.nix has no $benchmark, which $file runs"
    done
    passed "the experiments run benchmarks that the package has"
}

check_flake() { # runs `nix flake check` without building, with nix/check/nixpkgs.nix as nixpkgs
    mkdir "$work/nixpkgs"
    cp -r nix/check "$work/nixpkgs"
    cp -rL "$NIXPKGS_LIB" "$work/nixpkgs/lib"
    echo 'import ./check/nixpkgs.nix { nixpkgsLib = ./lib; }' >"$work/nixpkgs/default.nix"
    echo '{ outputs = _: { }; }' >"$work/nixpkgs/flake.nix"
    nix flake check --no-build --no-write-lock-file --override-input nixpkgs "path:$work/nixpkgs" . 2>"$work/said" ||
        failed "the flake's outputs are not what they must be: $(cat "$work/said")"
    [ "$(nix-instantiate --eval --read-write-mode nix/check/apps.nix --arg nixpkgs "$work/nixpkgs")" = true ] ||
        failed "the flake's apps are not what they must be"
    passed "every output of the flake evaluates to what it must be"
}

if [ -z "${NIXPKGS_LIB:-}" ]; then
    skipped "evaluation of the modules, the recipes and the outputs" "NIXPKGS_LIB does not name the directory lib of nixpkgs"
else
    check_modules
    if command -v systemd-analyze >/dev/null; then
        check_units
    else
        skipped "what systemd says of the units" "systemd-analyze is missing"
    fi
    check_recipes
    check_installed
    check_benchmarks
    if [ -n "$git" ]; then check_flake; else skipped "the flake's outputs" "not a git checkout"; fi
fi

skipped "the packages, the checks and the virtual machines" "they need nixpkgs: \`nix flake check\`, see nix/README.md"
