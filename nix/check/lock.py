#!/usr/bin/env python3
"""Holds a flake.lock against the schema of its version, and against the inputs of the flake.nix beside it.

usage: lock.py flake.nix flake.lock

What it cannot know: whether the hash is that of the revision. Nix finds that out when it fetches.
"""

import base64
import json
import re
import sys


def fault(message):
    sys.exit(f"{sys.argv[2]}: {message}")


def exactly(what, value, keys):
    if set(value) != set(keys):
        fault(f"{what} has the keys {sorted(value)}, and not {sorted(keys)}")


def check_node(name, node, original):
    exactly(name, node, ["locked", "original"])
    locked = node["locked"]
    exactly(f"{name}.locked", locked, ["lastModified", "narHash", "owner", "repo", "rev", "type"])
    if locked["type"] != "github" or not re.fullmatch("[0-9a-f]{40}", locked["rev"]):
        fault(f"{name} is not pinned to a revision on GitHub")
    algorithm, _, digest = locked["narHash"].partition("-")
    if algorithm != "sha256" or len(base64.b64decode(digest, validate=True)) != 32:
        fault(f"{name}.locked.narHash is no SHA-256")
    if not isinstance(locked["lastModified"], int):
        fault(f"{name}.locked.lastModified is no number")
    exactly(f"{name}.original", node["original"], original)
    for key in original:
        if node["original"][key] != original[key]:
            fault(f"{name} is of another {key} than flake.nix says")
        if locked[key] != original[key]:
            fault(f"{name} locks another {key} than flake.nix says")


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        text = file.read()
    with open(sys.argv[2], encoding="utf-8") as file:
        lock = json.load(file)
    inputs = {
        name: {"type": "github", "owner": owner, "repo": repo, "rev": revision}
        for name, owner, repo, revision in re.findall(
            r'inputs\.(\w+)\.url = "github:([\w-]+)/([\w.-]+)/([0-9a-f]{40})"', text
        )
    }
    if not inputs:
        fault("flake.nix names no input by its revision")
    exactly("it", lock, ["nodes", "root", "version"])
    if lock["version"] != 7 or lock["root"] != "root":
        fault("it is of another version than 7, or has another root")
    exactly("nodes", lock["nodes"], ["root", *inputs])
    if lock["nodes"]["root"] != {"inputs": {name: name for name in inputs}}:
        fault("the root has other inputs than flake.nix")
    for name, original in inputs.items():
        check_node(name, lock["nodes"][name], original)


main()
