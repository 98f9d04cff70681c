"""The guide's blocks run, those that need Spark among them, in the page's order."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent.parent / "docs" / "guide.md"
BLOCK = re.compile(r"^```py(?:thon)?\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.spark
def test_the_guide_runs_from_the_first_block_to_the_last(spark, tmp_path):
    page = PAGE.read_text().replace('"./', f'"{tmp_path}/')  # this Spark was started in another folder
    assert page.count("\n```py\n") == 1
    namespace = {"__name__": "__main__"}
    for block in BLOCK.finditer(page):
        code = "\n" * page.count("\n", 0, block.start("code")) + block["code"]
        exec(compile(code, PAGE, "exec"), namespace)
