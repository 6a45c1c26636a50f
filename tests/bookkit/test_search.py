"""What a reader types into the search box finds the right page."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.bookkit.site_builder import build

CONFIG = {"extensions": ["myst_nb", "tests.bookkit.site_builder", "attnbook.bookkit.search"]}
PAGES = {
    "ja": {
        "index": "(top)=\n# 目次\n\n```{toctree}\none\ntwo\n```\n",
        "one": "(one)=\n# 注意機構\n\n注意機構は、アテンションの訳語です。`float16` で計算し、softmax を使います。\n",
        "two": "(two)=\n# マスク\n\n注意して機構を見ます。因果マスクは未来を隠します。層が一つあります。\n",
    },
    "ko": {
        "index": "(top)=\n# 차례\n\n```{toctree}\none\ntwo\n```\n",
        "one": "(one)=\n# 토큰\n\n토큰은 글의 조각입니다. 어텐션을 계산합니다.\n",
        "two": "(two)=\n# 모델\n\n모델을 학습시킵니다.\n",
    },
}
FOUND = [
    ("ja", "注意機構", {"one"}), ("ja", "因果マスク", {"two"}), ("ja", "アテンション", {"one"}), ("ja", "層", {"two"}),
    ("ja", "float16", {"one"}), ("ja", "Softmax 計算", {"one"}), ("ja", "勾配", set()),
    ("ko", "토큰", {"one"}), ("ko", "학습", {"two"}), ("ko", "어텐션", {"one"}), ("ko", "그래디언트", set()),
]  # fmt: skip

# Sphinx's own script, as the search page runs it, without the page.
SEARCH = r"""
const fs = require("fs"), vm = require("vm"), [folder, query] = process.argv.slice(2);
const document = { addEventListener() {}, getElementById: () => null, documentElement: { dataset: {} } };
const page = { document, window: {}, console,
  SPHINX_HIGHLIGHT_ENABLED: false, DOCUMENTATION_OPTIONS: {}, _ready() {} };
vm.createContext(page);
for (const name of ["_static/language_data.js", "_static/searchtools.js", "searchindex.js"])
  vm.runInContext(fs.readFileSync(folder + "/" + name, "utf-8"), page);
vm.runInContext("globalThis.found = q => Search._performSearch(...Search._parseQuery(q)).map(r => r[0])", page);
console.log(JSON.stringify(page.found(query)));
"""


@pytest.fixture(scope="module", params=["ja", "ko"])
def site(request, tmp_path_factory) -> tuple[str, Path]:
    folder = tmp_path_factory.mktemp("search")
    build(folder, PAGES[request.param], language=request.param, **CONFIG)
    return request.param, folder / "_build/html"


@pytest.mark.skipif(shutil.which("node") is None, reason="Node.js runs the page's script, and is not here")
def test_the_right_page_is_found(site, tmp_path) -> None:
    """Words inside words, words with particles, single letters, Latin words; and nothing where nothing is."""
    language, folder = site
    (tmp_path / "search.js").write_text(SEARCH, encoding="utf-8")
    for asked_in, query, pages in FOUND:
        if asked_in == language:
            done = subprocess.run(
                ["node", tmp_path / "search.js", folder, query], capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
            found = set(json.loads(done.stdout)) - {"index"}  # the contents have every title
            assert found == pages, query


def test_the_index_has_every_pair_and_the_page_asks_for_pairs(site) -> None:
    """Without running the script: the terms of a query are in the index, and the search page cuts alike."""
    language, folder = site
    text = (folder / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(text.removeprefix("Search.setIndex(").rstrip().removesuffix(")"))
    word = {"ja": "因果マスク", "ko": "학습"}[language]
    terms = {word[i : i + 2] for i in range(len(word) - 1)}
    assert terms <= set(index["terms"])
    assert "function splitQuery(query)" in (folder / "_static/language_data.js").read_text(encoding="utf-8")
