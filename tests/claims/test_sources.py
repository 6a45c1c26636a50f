"""Roles found in source text, and matched with what became of them."""

from pathlib import Path

from attnbook.claims.sources import Written, line_of, match_up, read_source, roles_in


def test_roles_in_markdown_and_restructuredtext():
    """Both forms, with their lines; a name in inline code and a role cut by an empty line are none."""
    text = "a {claim}`1 <x>`\n\n`{claim}` b {holds}``c `d` <y>``\n:claim:`2\n<z>` {claim}`e\n\nf`\n"
    assert roles_in(text) == [
        Written("claim", "1 <x>", 1), Written("holds", "c `d` <y>", 3), Written("claim", "2 <z>", 4),
    ]  # fmt: skip


def test_a_role_right_behind_another():
    """Japanese leaves no space between them."""
    text = "{holds}`そうです <x>`{claim}`3倍 <y>`と{cite:t}`vaswani2017`{claim}`約8 <z>`と`{claim}`3 <w>``\n"
    assert [role.raw for role in roles_in(text)] == ["そうです <x>", "3倍 <y>", "約8 <z>"]


def test_places_where_roles_vanish():
    """Front matter and the alt text of a Markdown image, but not the text of a link."""
    text = (
        "---\na: '{claim}`1 <x>`'\n---\n![b [c] {claim}`2 <x>`](d.svg) [{claim}`3 <x>`](e)\n---\n{claim}`4 <x>`\n---\n"
    )
    assert [role.place for role in roles_in(text)] == ["front matter", "alt text", "", ""]


def test_equal_roles_are_matched_in_order_from_their_block_on():
    """A role seen in a block takes the first equal one there or later; what is left was lost."""
    written = [Written("claim", "1 <x>", line) for line in (3, 7, 7, 9)]
    seen = [Written("claim", "1 <x>", line) for line in (8, 6, 6)]
    lines, lost = match_up(seen, written)
    assert lines == [9, 7, 7]
    assert [role.line for role in lost] == [3]


def test_a_role_of_another_file_has_no_line():
    """What was included from elsewhere is in no line of this file."""
    assert match_up([Written("claim", "1 <x>", 5)], [Written("holds", "1 <x>", 5)])[0] == [0]


def test_line_of_the_first_snippet_found():
    """The longer context first; where nothing is found, the block's own line."""
    lines = ["37", "b 37 c", "37"]
    assert line_of(lines, ["b 37", "37"], 1) == 2
    assert line_of(lines, ["x 37", "37"], 2) == 2
    assert line_of(lines, ["nothing"], 2) == 2


def test_a_notebook_is_read_line_by_line(tmp_path: Path):
    """The lines of an .ipynb are those of its JSON file."""
    path = tmp_path / "a.ipynb"
    path.write_text('{\n "cells": [\n  "\\u7d04 {claim}`\\u7d043 <x>`\\n",\n  "b"\n ]\n}\n')
    assert roles_in(read_source(path)) == [Written("claim", "約3 <x>", 3)]


def test_a_source_that_cannot_be_read_is_empty(tmp_path: Path):
    """Sphinx itself reports a missing or undecodable file."""
    assert read_source(tmp_path / "none.md") == ""
