"""Pictures, and a local web server that serves them as a source's server does."""

from http.server import BaseHTTPRequestHandler
from io import BytesIO
from typing import Any

from PIL import Image, ImageDraw

from tests.support.local_web_server import LocalWebServer, QuietHandler


def draw_figure(size: tuple[int, int] = (1200, 648), mode: str = "RGB") -> Image.Image:
    """Draw a curve above two axes, as in a figure of a paper."""
    width, height = size
    image = Image.new(mode, size, "white")
    pen = ImageDraw.Draw(image)
    pen.line((width // 10, height // 10, width // 10, height * 9 // 10, width, height * 9 // 10), "black", 4)
    pen.line((width // 10, height * 8 // 10, width // 2, height // 2, width, height // 4), "navy", 6)
    return image


def encode(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    """Return the bytes of a file with the picture."""
    target = BytesIO()
    image.save(target, kind, **options)
    return target.getvalue()


class PictureServer(LocalWebServer):
    """Use as a context manager. `answers` maps paths to status, headers and body; others return a figure."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.answers: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.paths: list[str] = []  # of the requests
        self.figure = encode(draw_figure())
        owner = self

        class Handler(QuietHandler, BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                owner.paths.append(self.path)
                usual = (200, {"content-type": "image/png"}, owner.figure)
                status, headers, body = owner.answers.get(self.path, usual)
                self.send_response(status)
                for name, value in {**headers, "content-length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

        super().__init__(Handler, host)
