#!/usr/bin/env python3
"""Writes what the programs consist of: inventory.py DIRECTORY.

THIRD-PARTY-LICENSES.txt has the licence of each library that is linked into the programs, with the texts that it comes with;
sbom.cdx.json is a bill of materials (CycloneDX 1.5). Both follow from Cargo.lock and the sources that Cargo has downloaded.
Equal inputs give equal files.
"""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

PROGRAMS = ("polymeter-agent", "polymeter-collector", "polymeter-cli")
PLATFORM = "x86_64-unknown-linux-gnu"
TEXT = re.compile(r"(licen[cs]e|copying|notice|unlicense)", re.IGNORECASE)

# Parts that are not crates: name, licence, the file that begins with its version, and that of the licence's text.
PARTS = (("uPlot", "MIT", "page/assets/uplot/uPlot.iife.min.js", "page/assets/uplot/LICENSE"),)


def metadata(root):
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", PLATFORM]
    return json.loads(subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE).stdout)


def linked(found):
    """Returns the packages that the programs link, sorted: those of build scripts and tests are left out."""
    packages = {package["id"]: package for package in found["packages"]}
    nodes = {node["id"]: node for node in found["resolve"]["nodes"]}
    waiting = [key for key, package in packages.items() if package["name"] in PROGRAMS]
    if len(waiting) != len(PROGRAMS):
        sys.exit("inventory.py: the workspace lacks a program")
    reached = set()
    while waiting:
        key = waiting.pop()
        if key in reached:
            continue
        reached.add(key)
        for dependency in nodes[key]["deps"]:
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                waiting.append(dependency["pkg"])
    external = (packages[key] for key in reached if packages[key]["source"])
    return sorted(external, key=lambda package: (package["name"], package["version"]))


def texts(package):
    """Returns the licence texts in the package's own directory."""
    directory = Path(package["manifest_path"]).parent
    named = package.get("license_file")
    files = {file for file in directory.iterdir() if file.is_file() and TEXT.search(file.name)}
    if named:
        files.add(directory / named)
    return [(file.name, file.read_text(errors="replace").strip()) for file in sorted(files)]


def licences(packages, parts):
    lines = ["The programs of Polymeter contain these libraries, under the licences that are named.", ""]
    by_text = {}
    for package in packages:
        lines.append(f"{package['name']} {package['version']}: {package['license'] or 'see its text'}")
        for name, text in texts(package):
            by_text.setdefault(text, []).append(f"{package['name']} {package['version']} ({name})")
    lines += [f"{part['name']} {part['version']}: {part['license']}" for part in parts]
    for part in parts:
        by_text.setdefault(part["text"], []).append(f"{part['name']} {part['version']}")
    for text, users in by_text.items():
        lines += ["", "=" * 80, *users, "-" * 80, text]
    return "\n".join(lines) + "\n"


def bill(packages, parts, version, checksums):
    def component(package):
        name, number = package["name"], package["version"]
        entry = {
            "type": "library",
            "name": name,
            "version": number,
            "purl": f"pkg:cargo/{name}@{number}",
            "bom-ref": f"pkg:cargo/{name}@{number}",
        }
        if package["license"]:
            # Old manifests separate alternatives by a slash.
            entry["licenses"] = [{"expression": re.sub(r"\s*/\s*", " OR ", package["license"])}]
        if (name, number) in checksums:
            entry["hashes"] = [{"alg": "SHA-256", "content": checksums[name, number]}]
        return entry

    others = [
        {"type": "library", "name": part["name"], "version": part["version"], "licenses": [{"expression": part["license"]}]}
        for part in parts
    ]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": "polymeter", "version": version}},
        "components": [component(package) for package in packages] + others,
    }


def main():
    root = Path(__file__).resolve().parents[2]
    directory = Path(sys.argv[1])
    with open(root / "Cargo.toml", "rb") as file:
        version = tomllib.load(file)["workspace"]["package"]["version"]
    with open(root / "Cargo.lock", "rb") as file:
        locked = tomllib.load(file)["package"]
    checksums = {(entry["name"], entry["version"]): entry["checksum"] for entry in locked if "checksum" in entry}
    packages = linked(metadata(root))
    parts = [
        {"name": name, "version": part_version(root / file), "license": licence, "text": (root / text).read_text().strip()}
        for name, licence, file, text in PARTS
    ]
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "THIRD-PARTY-LICENSES.txt").write_text(licences(packages, parts))
    text = json.dumps(bill(packages, parts, version, checksums), indent=1)
    (directory / "sbom.cdx.json").write_text(text + "\n")
    print(f"{len(packages) + len(parts)} libraries")


def part_version(file):
    found = re.search(r"v(\d+\.\d+\.\d+)", file.read_text()[:400])
    if not found:
        sys.exit(f"inventory.py: {file} does not name its version")
    return found[1]


main()
