"""A preprocessor of mdBook: links to files outside of docs/ become links to the repository.

In docs/ they are relative, so that they work in a checkout and on the repository's pages, and a test checks them.
"""

import json
import re
import sys


def rewrite(chapter, repository):
    depth = chapter["path"].count("/") + 1 if chapter["path"] else 0
    outside = re.compile(r"\]\(" + r"\.\./" * depth + r"(?!\.\./)")
    chapter["content"] = outside.sub(f"]({repository}/blob/main/", chapter["content"])
    for item in chapter["sub_items"]:
        if "Chapter" in item:
            rewrite(item["Chapter"], repository)


if sys.argv[1:2] == ["supports"]:
    sys.exit(0)
context, book = json.load(sys.stdin)
for section in book["sections"]:
    if "Chapter" in section:
        rewrite(section["Chapter"], context["config"]["output"]["html"]["git-repository-url"])
json.dump(book, sys.stdout)
