"""The comments that translators see in the templates."""

import io
import os
import re

from babel.messages import pofile

from attnbook.claims.pot import with_comments
from tests.claims.tiny import Project, measured

PAGE = (
    "# 題\n\n" + measured("a.ratio", 8886110.5) + measured("a.flag", "True")
    + "\n比は {claim}`約900万 <a.ratio>` で、{claim}`889万 <a.ratio>` です。\n"
    "\n文は {holds}`見えない <a.flag>`。\n\n文。\n"
)  # fmt: skip


def test_each_message_with_claims_says_what_it_accepts(tmp_path):
    """Id, accepted interval and the source's number above each msgid that holds a claim, and above no other."""
    project = Project(tmp_path, 'language = "ja"\ngettext_compact = False')
    project.write("index.md", PAGE)
    project.write("deep/page.md", ":orphan:\n\n# 題\n\n{claim}`889万 <a.ratio>`\n")
    built = project.build(builder="gettext")
    assert built.code == 0, built.errors
    catalogue = pofile.read_po(io.BytesIO((project.out / "gettext" / "index.pot").read_bytes()))
    comments = {message.id: message.auto_comments for message in catalogue if message.id}
    assert [(key[:4], value) for key, value in comments.items() if value] == [
        ("比は {", [
            "claim a.ratio accepts 8500000 to 9500000; write the same number as 約900万",
            "claim a.ratio accepts 8885000 to 8895000; write the same number as 889万",
        ]),
        ("文は {", ["holds a.flag: a statement that was measured to be true; keep its meaning"]),
    ]  # fmt: skip
    assert "#. claim a.ratio accepts" in (project.out / "gettext" / "deep" / "page.pot").read_text(encoding="utf-8")


def test_a_template_that_says_the_same_is_left_alone(tmp_path):
    """A second run changes neither the creation date nor the time stamp of a template."""
    project = Project(tmp_path, 'language = "ja"')
    project.write("index.md", PAGE)
    project.build(builder="gettext")
    path = project.out / "gettext" / "index.pot"
    path.write_text(re.sub(r"Creation-Date: [0-9-]+", "Creation-Date: 2001-02-03", path.read_text()))
    os.utime(path, (10**9, 10**9))
    before = path.read_bytes()
    project.build(builder="gettext")
    assert path.read_bytes() == before
    assert path.stat().st_mtime == 10**9
    project.edit("index.md", "文。", "別の文。")
    project.build(builder="gettext")
    assert "2001-02-03" not in path.read_text()


def test_with_comments_replaces_its_own_and_keeps_the_rest():
    """Comments go above the references of their message; those of an earlier run go, all else stays byte for byte."""
    template = (
        'msgid ""\nmsgstr ""\n\n#. claim a.x accepts 1 to 2; write the same number as 1\n#. for translators\n'
        '#: index.md:3\nmsgid "a"\nmsgstr ""\n\n#: index.md:5\nmsgid ""\n"b "\n"c"\nmsgstr ""\n'
    )
    assert with_comments(template, {"a": ["claim a.x accepts 3"], "b c": ["claim a.y accepts 4"]}) == (
        'msgid ""\nmsgstr ""\n\n#. claim a.x accepts 3\n#. for translators\n'
        '#: index.md:3\nmsgid "a"\nmsgstr ""\n\n#. claim a.y accepts 4\n#: index.md:5\nmsgid ""\n"b "\n"c"\nmsgstr ""\n'
    )
