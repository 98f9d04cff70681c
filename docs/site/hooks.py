"""What the site needs beside the pages of ``docs/``: pages from elsewhere in the repository, and the API reference.

On the way it fails where a name of the API has no docstring.
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

REPOSITORY = Path(__file__).parent.parent.parent
sys.path.insert(0, str(REPOSITORY))

from docs.site.public_names import API, undocumented_exports  # noqa: E402

MOVED = {
    "README.md": "about.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/RESULTS.md": "benchmarks.md",
}
"""Pages outside of ``docs/``, and what they are called on the site."""
FENCE = re.compile(r"^```.*?^```[ ]*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[(?P<text>[^\]\[]*)\]\((?P<target>[^()\s]+)\)")


def on_config(config: Any) -> Any:
    """Refuse undocumented names, and complete the navigation."""
    missing = undocumented_exports(REPOSITORY / "sparklog")
    if missing:
        raise PluginError(f"public names without a docstring: {', '.join(missing)}")
    decisions = sorted((REPOSITORY / "docs" / "decisions").glob("0*.md"))
    _section(config.nav, "API").extend({module: f"api/{module}.md"} for module in API)
    _section(config.nav, "Decisions").extend(
        ["decisions/README.md", *({page.stem[:4]: f"decisions/{page.name}"} for page in decisions)]
    )
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages from elsewhere, and one for each module of the API."""
    for source, name in MOVED.items():
        files.append(File.generated(config, name, content=(REPOSITORY / source).read_text()))
    for module in API:
        files.append(File.generated(config, f"api/{module}.md", content=f"# {module}\n\n::: {module}\n"))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links to where the pages are on the site; what isn't on it is named without a link."""
    source = {name: path for path, name in MOVED.items()}.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    def moved(link: re.Match[str]) -> str:
        target, hash_, anchor = link["target"].partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return link[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        on_site = MOVED.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
        if on_site is None or not on_site.endswith(".md") or on_site == "decisions/template.md":
            return f"{link['text']} (`{path}`)" if (REPOSITORY / path).exists() else link[0]
        relative = posixpath.relpath(on_site, posixpath.dirname(page.file.src_uri) or ".")
        return f"[{link['text']}]({relative}{hash_}{anchor})"

    pieces, last = [], 0
    for fence in FENCE.finditer(markdown):
        pieces += [LINK.sub(moved, markdown[last : fence.start()]), fence[0]]
        last = fence.end()
    return "".join([*pieces, LINK.sub(moved, markdown[last:])])


def _section(nav: list[Any], title: str) -> list[Any]:
    """The list under ``title``, wherever it stands in the navigation."""
    for entry in nav:
        for name, inside in entry.items() if isinstance(entry, dict) else ():
            if name == title:
                return inside
            if isinstance(inside, list):
                try:
                    return _section(inside, title)
                except LookupError:
                    pass
    raise LookupError(title)
