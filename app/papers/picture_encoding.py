"""PURE. Decode an untrusted picture, and encode a small copy of it as WebP without its metadata."""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING

from app.errors import UnreadableResponse

if TYPE_CHECKING:
    from PIL import Image

MEDIA_TYPE = "image/webp"
FORMATS = ("PNG", "JPEG", "WEBP", "GIF")  # the only decoders to which untrusted bytes are passed
MAX_PIXELS = 16_000_000  # of the original; each pixel takes up to 16 bytes of memory
MIN_SIDE, MAX_SIDE = 32, 480  # pixels: smaller originals are not figures, larger ones are scaled down
MAX_RATIO = 16  # of the longer side to the shorter side; a small copy of a strip would be a line
QUALITY = 80  # of 100
UNREADABLE = "the picture cannot be decoded"


@dataclass(frozen=True, slots=True)
class EncodedPicture:
    """A picture as it is served. Width and height are in pixels."""

    data: bytes
    width: int
    height: int


def encode_small(data: bytes) -> EncodedPicture:
    """Return a copy of a picture, or of its first frame, that fits into MAX_SIDE × MAX_SIDE pixels.

    The format is detected from the bytes, not from the server's headers. Raise UnreadableResponse if it is
    not one of FORMATS, or if the picture is damaged, too large, too small or too narrow.
    """
    # Imported here, because most processes never decode a picture.
    from PIL import Image, ImageOps

    try:
        with Image.open(BytesIO(data), formats=FORMATS) as image:
            _check_size(*image.size)  # before any pixel is decoded
            image.draft("RGB", (2 * MAX_SIDE, 2 * MAX_SIDE))  # decodes a large JPEG at a reduced size
            ImageOps.exif_transpose(image, in_place=True)
            small = _on_white(image)
            small.thumbnail((MAX_SIDE, MAX_SIDE), Image.Resampling.LANCZOS)
            target = BytesIO()
            small.save(target, "WEBP", quality=QUALITY, exif=b"", icc_profile=b"", xmp=b"")
            return EncodedPicture(target.getvalue(), *small.size)
    except UnreadableResponse:
        raise
    except Exception as error:  # decoders raise errors of many types for damaged files
        raise UnreadableResponse(f"{UNREADABLE} ({type(error).__name__})") from None


def _check_size(width: int, height: int) -> None:
    if width * height > MAX_PIXELS:
        raise UnreadableResponse(f"the picture is too large: {width} × {height} pixels")
    if min(width, height) < MIN_SIDE:
        raise UnreadableResponse(f"the picture is too small: {width} × {height} pixels")
    if max(width, height) > MAX_RATIO * min(width, height):
        raise UnreadableResponse(f"the picture is too narrow: {width} × {height} pixels")


def _on_white(image: Image.Image) -> Image.Image:
    """Return a picture on a white background.

    Black text on a transparent background would be unreadable on a dark page.
    """
    from PIL import Image

    if image.mode.startswith("I"):  # 16-bit gray: `convert` would clip the values instead of scaling them
        transparent = image.info.pop("transparency", None)
        image = image.point(lambda value: value / 256).convert("L")
        if transparent is not None:
            image.info["transparency"] = transparent // 256
    if not image.has_transparency_data:
        return image.convert("RGB")
    pixels = image.convert("RGBA")
    opaque = Image.new("RGBA", pixels.size, "white")
    opaque.alpha_composite(pixels)
    return opaque.convert("RGB")
