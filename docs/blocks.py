"""Writes the blocks of pages/ that are computed of what is committed, `<!-- name -->` to `<!-- /name -->`: python docs/blocks.py."""

import re
from collections.abc import Mapping

import generate

PAGES = generate.DOCS / "pages"


def blocks() -> dict[str, dict[str, str]]:
    """Page -> name of a block -> what stands in it."""
    return {"exhibits.md": {"exhibits": generate.exhibits_table()}}


def filled(page: str, made: Mapping[str, str]) -> str:
    """The text of a page with its blocks as `made`; raises KeyError for a block that is not made."""

    def block(found: re.Match[str]) -> str:
        return f"<!-- {found[1]} -->\n{made[found[1]]}\n<!-- /{found[1]} -->"

    return re.sub(r"<!-- ([\w-]+) -->\n.*?<!-- /\1 -->", block, page, flags=re.S)


if __name__ == "__main__":
    for name, made in blocks().items():
        (PAGES / name).write_text(filled((PAGES / name).read_text(encoding="utf-8"), made), encoding="utf-8")
