"""A step of the lab on a page: its exercise with files to download, its hints, its solution."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

from attnbook.bookkit import lab_pages
from attnbook.lab import exercise
from attnbook.lab.exercise import exercise_notebook, exercise_source, solution_source
from attnbook.lab.texts import Texts, texts
from tests.bookkit.site_builder import build

PAGE = """(top)=
# 題

```{lab-exercise} 1
```

```{lab-hints} 1
```

```{lab-solution} 1
```
"""
EXTENSIONS = ["myst_nb", "tests.bookkit.site_builder", "attnbook.bookkit.lab_pages"]


def site(folder, pages, **config):
    return build(folder, pages, extensions=EXTENSIONS, **config)


def code(html):
    """The text of highlighted blocks."""
    from html import unescape

    blocks = re.findall(r'<div class="highlight"><pre>(.*?)</pre>', html, re.DOTALL)
    return [unescape(re.sub(r"<[^>]*>", "", block)) for block in blocks]


@pytest.mark.parametrize("lang", ["ja", "ko", "en"])
def test_a_step_in_the_language_of_the_build(tmp_path, lang):
    """The exercise in sight, hints and solution folded; all in one language, none of it reported as wrong."""
    built = site(tmp_path, {"index": PAGE}, language=lang)
    html = built.html()
    assert code(html) == [exercise_source("1", lang), solution_source("1", lang)]
    assert code(html)[1].strip() in html_text(html.partition("<details")[2])
    labels = re.findall(r"<summary[^>]*>(.*?)</summary>", html)
    assert (
        labels
        == {
            "ja": ["ヒント", "次のヒント", "最後のヒント", "解答"],
            "ko": ["힌트", "다음 힌트", "마지막 힌트", "풀이"],
            "en": ["Hint", "Next hint", "Last hint", "Solution"],
        }[lang]
    )
    assert built.problems() == []
    assert "lab" not in built.warnings


def html_text(html):
    from html import unescape

    return unescape(re.sub(r"<[^>]*>", "", html))


def test_hints_are_nested(tmp_path):
    """Whoever opens one sees its text, and that there is another; code in them is set as code."""
    html = site(tmp_path, {"index": PAGE}).html()
    details = html[html.index("<details") : html.index("解答</summary>")]
    order = [details.index(html_text(part)) for hint in texts(1).hints("ja") for part in [hint.split("`")[0]] if part]
    assert order == sorted(order)
    assert re.sub(r"<summary.*?</summary>|<p>.*?</p>|\s", "", details, flags=re.DOTALL).startswith(
        '<detailsclass="admonitiondropdown">' * 3 + "</details>" * 3
    )
    assert '<code class="docutils literal notranslate"><span class="pre">np.exp</span></code>' in details


def test_downloads_lie_in_the_site(tmp_path):
    """Links are relative, so that they work from the disk; the files are what `attnbook lab start` writes."""
    folder = tmp_path / "site"
    built = site(folder, {"index": "# 表紙\n\n```{toctree}\nlab/one\n```\n", "lab/one": PAGE})
    links = re.findall(r'<a class="lab-file" href="([^"]*)" download>([^<]*)</a>', built.html("lab/one"))
    assert links == [
        ("files/step1_three_lines.py", "Python のファイル"), ("files/step1_three_lines.ipynb", "ノートブック"),
    ]  # fmt: skip
    files = {Path(link).suffix: (folder / "_build/html/lab" / link).read_text("utf-8") for link, _ in links}
    assert files == {".py": exercise_source("1", "ja"), ".ipynb": exercise_notebook("1", "ja")}
    nbformat.validate(nbformat.reads(files[".ipynb"], as_version=4))


def test_files_of_a_step_that_no_page_shows_any_more_go(tmp_path):
    """Also when the page itself is gone; without a lab there is no folder."""
    pages = {"index": "# 表紙\n\n```{toctree}\n:glob:\n*\n```\n", "one": PAGE, "two": "# 二\n"}
    site(tmp_path, pages)
    files = tmp_path / "_build/html/lab/files"
    (files / "step9_older.py").write_text("old")
    site(tmp_path, {"two": "# 二つ\n"})
    assert sorted(path.name for path in files.iterdir()) == ["step1_three_lines.ipynb", "step1_three_lines.py"]
    (tmp_path / "one.md").unlink()
    site(tmp_path, {"two": "# 二\n"})
    assert list(files.iterdir()) == []
    site(tmp_path / "other", {"index": "# 題\n"})
    assert not (tmp_path / "other/_build/html/lab").exists()


def test_a_page_follows_its_texts(tmp_path):
    """Its dependencies are the step, its texts and its solution: a change of one has the page read again."""
    built = site(tmp_path, {"index": PAGE})
    names = {Path(str(path)).name for path in built.app.env.dependencies["index"]}
    assert names >= {"three_lines.py", "three_lines.toml", "step1_three_lines.py", "exercise.py", "folder.toml"}


def test_a_step_that_there_is_not(tmp_path):
    """It is a failure of the page, with its line, and names those that there are."""
    built = site(tmp_path, {"index": PAGE.replace("{lab-hints} 1", "{lab-hints} 99")})
    assert [(line, status) for line, status, _ in built.problems()] == [(7, "lab")]
    assert "no step '99' in the lab: it has 1" in built.problems()[0][2]


def test_a_step_without_all_its_texts(tmp_path, monkeypatch):
    """A text that is missing in the language of the build is a failure of the page as well."""
    data = {key: value for key, value in texts(1).data.items() if key != "holes"}
    monkeypatch.setattr(exercise, "texts", lambda key: Texts("1", data))
    exercise_source.cache_clear()
    built = site(tmp_path, {"index": PAGE})
    exercise_source.cache_clear()
    assert [message for _, _, message in built.problems()] == [
        "step1_three_lines.py:11: step 1 has no text holes.lines"
    ] * 3


def test_plain_text_folds_nothing(tmp_path):
    """Another format has the code, and hints and solution as ordinary boxes; no links."""
    build(tmp_path, {"index": PAGE}, builder="text", extensions=EXTENSIONS)
    text = (tmp_path / "_build/text/index.txt").read_text("utf-8")
    assert text.count("raise NotImplementedError") == 1
    assert "return weights @ v" in text
    assert "files/" not in text


def test_translators_get_none_of_it(tmp_path):
    """It is there in three languages already."""
    build(tmp_path, {"index": PAGE}, builder="gettext", extensions=EXTENSIONS)
    template = (tmp_path / "_build/gettext/index.pot").read_text("utf-8")
    assert re.findall(r'^msgid "(.+)"', template, re.MULTILINE) == ["題"]


def test_a_language_that_the_lab_does_not_speak():
    """A book in French has the exercises in English."""
    assert [lab_pages._language(name) for name in ("fr", None, "ko", "ja")] == ["en", "en", "ko", "ja"]
