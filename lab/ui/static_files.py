"""The files of the page, by their paths; files outside their folder are not served."""

import base64
import hashlib
import re
from pathlib import Path
from typing import Final

from services.api.errors import NotFound

TYPES: Final = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".woff2": "font/woff2",
    ".txt": "text/plain",
    ".toml": "text/plain",
}
INDEX: Final = "index.html"
_IMPORT_MAP: Final = re.compile(r'<script type="importmap">(.*?)</script>', re.DOTALL)
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


class StaticFiles:
    """Files below one folder, read on request."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, path: str) -> tuple[bytes, str]:
        """Return a file's bytes and content type. Raises: NotFound."""
        parts = path.split("/")
        content_type = TYPES.get(Path(path).suffix)
        if content_type is None or not all(_NAME.fullmatch(part) for part in parts):
            raise NotFound(f"there is no file {path[:100]!r}")
        try:
            return self._folder.joinpath(*parts).read_bytes(), content_type
        except OSError:
            raise NotFound(f"there is no file {path[:100]!r}") from None

    @property
    def import_map_hashes(self) -> list[str]:
        """Hashes by which a policy allows the page's import maps, which are inside the page itself."""
        try:
            text = (self._folder / INDEX).read_text("utf-8")
        except OSError:
            return []
        return [hash_of(each) for each in _IMPORT_MAP.findall(text)]


def hash_of(text: str) -> str:
    """Return `sha256-…` of the text between the tags of a script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def charset(content_type: str) -> str | None:
    """Return the character set of a content type; None if it is no text."""
    return "utf-8" if content_type.startswith("text/") else None
