"""docs/families.md names what there is."""

from __future__ import annotations

import re

from test_layout import ROOT

from octavo.models.families import FAMILIES


def test_every_family_has_its_row_and_no_other() -> None:
    page = (ROOT / "docs" / "families.md").read_text()
    rows = re.findall(r"^\| ([\w-]+) \| [^|]* \| (`\w+`[^|]*) \| ([^|]*) \|", page, re.MULTILINE)
    described = {  # the head row apart
        name: (classes.strip(), gguf.strip("` ")) for name, classes, gguf in rows[1:]
    }
    # A GGUF of a Mistral or a Mixtral says that it is a Llama.
    containers = {"mistral": "llama", "mixtral": "llama"}
    assert described == {
        family.name: (
            ", ".join(f"`{name}`" for name in (*family.classes, *family.parts_of)),
            containers.get(family.name, family.gguf or "not read"),
        )
        for family in FAMILIES
    }
