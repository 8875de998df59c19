"""Hooks of mkdocs (mkdocs.yml): pages of other folders, links that work both there and in the site, the version.

A link in any page is written as for the repository. Here it becomes one of the site where its file is a page, and plain
text where it is another file of the repository. One that leads nowhere stays as it is: `mkdocs build --strict` fails.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path, PurePosixPath
from typing import Any, Optional

ROOT = Path(__file__).resolve().parents[1]
# Pages of the site that are files elsewhere in the repository.
ELSEWHERE = {
    "source/allocator.md": "allocator/README.md",
    "source/engine.md": "allocator/engine/README.md",
    "source/engine-details.md": "allocator/engine/details.md",
    "source/backing.md": "allocator/backing/README.md",
    "source/planner.md": "planner/README.md",
    "source/package.md": "patches/README.md",
    "source/format.md": "proto/FORMAT.md",
    "source/bench.md": "bench/README.md",
    "source/examples.md": "examples/README.md",
    "source/contributing.md": "CONTRIBUTING.md",
    "source/changelog.md": "CHANGELOG.md",
    "source/security.md": "SECURITY.md",
}
_PAGES = {path: page for page, path in ELSEWHERE.items()}
_LINK = re.compile(r"(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>[^)\s]+)\)")
_FENCE = re.compile(r"^(?:```|~~~).*?^(?:```|~~~)\s*$", re.MULTILINE | re.DOTALL)
_OUTSIDE = re.compile(r"[a-z]+:|#")


_VERSION = re.compile(r"project\(stalloc VERSION ([0-9.]+)")


def on_config(config: Any) -> Any:
    """The version of CMakeLists.txt in the title, and a link to the repository that this checkout is of."""
    config["site_name"] = f"stalloc {version()}"
    config["repo_url"] = config["repo_url"] or repository()
    return config


def version() -> str:
    found = _VERSION.search((ROOT / "CMakeLists.txt").read_text(encoding="utf-8"))
    assert found is not None, "CMakeLists.txt names no version"
    return found[1]


def repository() -> Optional[str]:
    """The address of the remote `origin` for a browser; None where it has none."""
    words = ["git", "-C", str(ROOT), "remote", "get-url", "origin"]
    url = subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
    shell = re.fullmatch(r"git@([^:]+):(.+)", url)
    url = f"https://{shell[1]}/{shell[2]}" if shell else url
    return url.removesuffix(".git") if url.startswith("https://") else None


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File  # here: scripts/index_page works without mkdocs

    for page, path in ELSEWHERE.items():
        files.append(File.generated(config, page, content=(ROOT / path).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    uri = page.file.src_uri
    source = PurePosixPath(ELSEWHERE.get(uri, f"docs/{uri}"))

    def replaced(match: re.Match[str]) -> str:
        if _OUTSIDE.match(match["target"]):
            return match[0]
        target, _, anchor = match["target"].partition("#")
        path = os.path.normpath(source.parent / target)
        found = _in_site(path)
        if found is not None:
            return f"{match['image']}[{match['text']}]({_relative(found, uri)}{'#' + anchor if anchor else ''})"
        return match["text"] if (ROOT / path).exists() and not match["image"] else match[0]

    code, parts = _FENCE.findall(markdown), _FENCE.split(markdown)
    replaced_parts = [_LINK.sub(replaced, part) for part in parts]
    return "".join(text + block for text, block in zip(replaced_parts, [*code, ""]))


def _in_site(path: str) -> Optional[str]:
    """The page or file of the site that a file of the repository is."""
    if path in _PAGES:
        return _PAGES[path]
    for folder in (f"{path}/README.md",):
        if folder in _PAGES:
            return _PAGES[folder]
    if path.startswith("docs/") and (ROOT / path).is_file():
        return path.removeprefix("docs/")
    return None


def _relative(target: str, page: str) -> str:
    return os.path.relpath(target, os.path.dirname(page) or ".")
