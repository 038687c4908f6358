#!/usr/bin/env python3
"""Writes units as NixOS would, so that systemd can be asked about them.

usage: units.py MODULES.json DIRECTORY
"""

import json
import pathlib
import sys


def lines(section, settings):
    yield f"[{section}]"
    for key, value in settings.items():
        for one in value if isinstance(value, list) else [value]:
            yield f"{key}={str(one).lower() if isinstance(one, bool) else one}"


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        units = json.load(file)["units"]
    for name, unit in units.items():
        order = {key.capitalize(): unit[key] for key in ("after", "requires", "wants")}
        text = [*lines("Unit", order), *lines("Service", unit["serviceConfig"])]
        (pathlib.Path(sys.argv[2]) / f"{name}.service").write_text("\n".join(text) + "\n", encoding="utf-8")


main()
