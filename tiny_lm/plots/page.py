"""One HTML page with words and pictures that needs no other file and no network."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from tiny_lm.plots.picture import Picture

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
       color: #222; background: #fff; }
pre { font: 13px/1.45 ui-monospace, monospace; background: #f4f4f4; padding: .75rem;
      overflow-x: auto; }
li { margin-bottom: .5rem; }
figure { margin: 0; }
figure img { max-width: 100%; height: auto; background: #fff; }
figcaption { margin: .25rem 0 1rem; }
@media (prefers-color-scheme: dark) {
  body { color: #ddd; background: #161616; }
  pre { background: #262626; }
}
"""

Section = tuple[str, "Picture | str | Sequence[str]"]


def page(title: str, first: str, sections: Sequence[Section]) -> str:
    """A page: `title, first line, (heading, content) … -> HTML`.

    A content is a picture, with its sentence as alternative text and caption; a text of several
    lines, shown as it stands; or sentences, shown as a list.
    """
    parts = [
        "<!doctype html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<style>{STYLE}</style></head>",
        f"<body><main><h1>{escape(title)}</h1><p>{escape(first)}</p>",
    ]
    for heading, content in sections:
        parts.append(f"<section><h2>{escape(heading)}</h2>")
        parts.append(_content(content))
        parts.append("</section>")
    return "\n".join([*parts, "</main></body></html>", ""])


def _content(content: Picture | str | Sequence[str]) -> str:
    if isinstance(content, Picture):
        return _figure(content)
    if isinstance(content, str):
        return f'<pre tabindex="0">{escape(content)}</pre>'  # reached by keyboard, to scroll
    return "<ul>" + "".join(f"<li>{escape(sentence)}</li>" for sentence in content) + "</ul>"


def _figure(picture: Picture) -> str:
    words = escape(picture.sentence)
    return (
        f'<figure><img alt="{words}" width="{picture.width}" height="{picture.height}" '
        f'src="data:image/png;base64,{picture.png()}"><figcaption>{words}</figcaption></figure>'
    )
