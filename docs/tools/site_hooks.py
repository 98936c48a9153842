"""Hooks of mkdocs.yml.

README is the site's first page. Links to what is not on the site become plain text. No page asks the network for
anything: `_WORKER` takes the place of the theme's one script from elsewhere, which lets a page opened as a file search.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_SHIM = re.compile(r'<script src="?https://unpkg\.com/iframe-worker/shim"?></script>')
# A browser starts no worker for a page that is a file: here a hidden frame, of the same origin, is one.
_WORKER = """<script>
if (location.protocol === "file:") window.Worker = class extends EventTarget {
  constructor(url) {
    super();
    window.reply = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
    const frame = document.createElement("iframe"), end = "<" + "/script>";
    frame.hidden = true;
    frame.srcdoc = `<script>window.postMessage = (data) => parent.reply(data);${end}<script src="${url}">${end}`;
    this.started = new Promise((done) => (frame.onload = () => done(frame.contentWindow)));
    document.body.append(frame);
  }
  async postMessage(data) {
    const inside = await this.started;
    inside.dispatchEvent(new inside.MessageEvent("message", { data }));
  }
};
</script>
<style>.md-typeset td code { word-break: normal; } .md-grid { max-width: 75rem; }</style>"""
LINK = re.compile(r"(!?)\[([^\[\]]*)\]\(([^()\s]+)\)")


def on_files(files: Any, *, config: Any) -> Any:
    """Add README as index.md."""
    from mkdocs.structure.files import File

    readme = (ROOT / "README.md").read_text()
    files.append(File.generated(config, "index.md", content=site_markdown(readme, ".")))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """The page as the site shows it."""
    name = page.file.src_uri
    return markdown if name == "index.md" else site_markdown(markdown, posixpath.dirname(f"docs/{name}"))


def on_post_page(output: str, **context: Any) -> str:
    """The HTML of a page, or of a template such as 404.html, without what it would fetch from elsewhere."""
    return _SHIM.sub(lambda found: _WORKER, output)


on_post_template = on_post_page


def site_markdown(text: str, folder: str) -> str:
    """The Markdown of a page that lies in `folder` of the repository, with links that lead somewhere on the site."""

    def link(found: re.Match[str]) -> str:
        image, label, target = found.groups()
        path, mark, anchor = target.partition("#")
        if "://" in target or not path:
            return found[0]
        place = posixpath.normpath(posixpath.join(folder, path))
        if place == "README.md":
            place = "docs/index.md"
        if not place.startswith("docs/") or (ROOT / place).is_dir():
            return label
        here = "docs" if folder == "." else folder
        return f"{image}[{label}]({posixpath.relpath(place, here)}{mark}{anchor})"

    return LINK.sub(link, text)
