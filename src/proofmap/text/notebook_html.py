"""HTML for notebooks: a picture with the sentences that describe it."""

from base64 import b64encode
from collections.abc import Sequence
from html import escape


def picture_html(png: bytes | None, sentences: Sequence[str]) -> str:
    """Return a picture and below it the sentences, which are also its alternative text; without a picture, the text."""
    lines = [escape(sentence) for sentence in sentences]
    if png is None:
        return f"<pre>{chr(10).join(lines)}</pre>"
    source = f"data:image/png;base64,{b64encode(png).decode()}"
    return f'<img src="{source}" alt="{" ".join(lines)}" style="max-width: 100%"><br><code>{"<br>".join(lines)}</code>'
