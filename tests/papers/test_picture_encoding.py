"""Test that pictures of strangers become small WebP files without metadata, in bounded memory and time."""

import struct
import tracemalloc
import zlib
from io import BytesIO

import pytest
from PIL import Image

from app.errors import UnreadableResponse
from app.papers import picture_encoding
from app.papers.picture_encoding import encode_small
from tests.support.pictures import draw_figure, encode

ORIENTATION, DESCRIPTION = 0x0112, 0x010E  # EXIF tags


def decode(data: bytes) -> Image.Image:
    """Decode an encoded picture, which must be WebP."""
    image = Image.open(BytesIO(data), formats=("WEBP",))
    image.load()
    return image


def png_header(width: int, height: int) -> bytes:
    """Return a PNG file of a size, whose pixels are missing."""
    chunks = b""
    for name, data in (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(bytes(1000))),
        (b"IEND", b""),
    ):
        chunks += struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    return b"\x89PNG\r\n\x1a\n" + chunks


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF"])
def test_formats(kind: str) -> None:
    """A picture of each format is scaled down to 480 pixels, and keeps its proportions."""
    encoded = encode_small(encode(draw_figure((1200, 648)), kind))
    assert (encoded.width, encoded.height) == decode(encoded.data).size == (480, 259)
    assert len(encoded.data) < 20_000


@pytest.mark.parametrize(
    ("size", "expected"), [((600, 2400), (120, 480)), ((300, 200), (300, 200)), ((1600, 100), (480, 30))]
)
def test_sizes(size: tuple[int, int], expected: tuple[int, int]) -> None:
    """A tall picture has a limit as well, and a small one is not scaled up."""
    encoded = encode_small(encode(draw_figure(size)))
    assert (encoded.width, encoded.height) == expected


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "I;16"])
def test_modes_of_png(mode: str) -> None:
    """Pictures with a palette, in shades of grey, and with transparency are decoded."""
    image = draw_figure().convert("L" if mode == "I;16" else mode)
    data = encode(image.convert("I").convert("I;16") if mode == "I;16" else image)
    assert decode(encode_small(data).data).mode == "RGB"


@pytest.mark.parametrize("value", [0, 64, 128, 255])
def test_grey_with_16_bits(value: int) -> None:
    """Its shades are kept. They were cut to 255 of 65,535, so that almost all became white."""
    image = Image.new("I", (200, 100), value * 257).convert("I;16")
    pixel = decode(encode_small(encode(image)).data).getpixel((100, 50))
    assert pixel == pytest.approx((value, value, value), abs=2)


@pytest.mark.parametrize(("transparent", "shade"), [(128 * 257, 255), (65_535, 128), (0, 128)])
def test_transparent_grey_with_16_bits(transparent: int, shade: int) -> None:
    """The transparent shade is scaled like the others."""
    source = BytesIO()
    image = Image.new("I", (200, 100), 128 * 257).convert("I;16")
    image.save(source, "PNG", transparency=transparent)
    pixel = decode(encode_small(source.getvalue()).data).getpixel((100, 50))
    assert pixel == pytest.approx((shade, shade, shade), abs=2)


def test_cmyk_jpeg() -> None:
    assert decode(encode_small(encode(draw_figure().convert("CMYK"), "JPEG")).data).mode == "RGB"


def test_transparent_pixels_become_white() -> None:
    """Black letters on a transparent ground would be unreadable on a dark page."""
    image = Image.new("RGBA", (200, 100), (0, 0, 0, 0))
    assert decode(encode_small(encode(image)).data).getpixel((100, 50)) == (255, 255, 255)


def test_metadata_is_dropped_and_orientation_applied() -> None:
    """The description, the comment and the colour profile of a photo are gone; it stands upright."""
    exif = Image.Exif()
    exif[ORIENTATION], exif[DESCRIPTION] = 6, "taken at home"
    photo = encode(draw_figure((900, 600)), "JPEG", exif=exif, comment=b"a comment", icc_profile=b"p" * 200)
    encoded = encode_small(photo)
    assert (encoded.width, encoded.height) == (320, 480)
    assert not {"exif", "icc_profile", "xmp", "comment"} & decode(encoded.data).info.keys()
    assert b"taken at home" in photo
    assert b"taken at home" not in encoded.data


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_transparent_picture_stands_upright(kind: str) -> None:
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    image = draw_figure((900, 600))
    image.putalpha(128)
    encoded = encode_small(encode(image, kind, exif=exif))
    assert (encoded.width, encoded.height) == decode(encoded.data).size == (320, 480)


def test_only_the_first_frame_of_an_animation_is_used() -> None:
    """The others are not even decoded."""
    frames = [Image.new("RGB", (300, 200), colour) for colour in ("red", "green", "blue")]
    for kind in ("GIF", "WEBP"):
        data = encode(frames[0], kind, save_all=True, append_images=frames[1:])
        image = decode(encode_small(data).data)
        assert getattr(image, "n_frames", 1) == 1
        red, green, blue = image.getpixel((150, 100))  # type: ignore[misc]
        assert red > 200 > green + blue


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<html>Not found</html>",
        b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>',
        b"GIF89a",
        b"\x89PNG\r\n\x1a\n" + bytes(100),
        encode(draw_figure())[:2000],
        encode(draw_figure(), "JPEG")[:2000],
        encode(draw_figure(), "BMP"),
        encode(draw_figure(), "TIFF"),
        encode(Image.new("RGB", (1, 1))),
        encode(Image.new("RGB", (300, 31))),
        encode(Image.new("RGB", (1601, 100))),
        encode(Image.new("RGB", (100, 1601))),
        png_header(400, 300),
    ],
)
def test_unreadable_files(data: bytes) -> None:
    """Other formats, which include ones with scripts, damaged files and tracking pixels are rejected."""
    with pytest.raises(UnreadableResponse):
        encode_small(data)


@pytest.mark.parametrize("size", [(60_000, 60_000), (20_000, 5_000), (5_000, 3_201)])
def test_bomb_is_rejected_before_it_is_decoded(size: tuple[int, int]) -> None:
    """A small file that claims many pixels, as a compression bomb does, takes no memory."""
    tracemalloc.start()
    try:
        with pytest.raises(UnreadableResponse):
            encode_small(png_header(*size))
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_compressed_text_is_limited() -> None:
    """A PNG may have a compressed text that expands to gigabytes."""
    plain, text = encode(draw_figure((64, 64))), zlib.compress(bytes(50_000_000))
    chunk = b"zTXt" + b"Comment\0\0" + text
    bomb = plain[:33] + struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
    with pytest.raises(UnreadableResponse):
        encode_small(bomb + plain[33:])


def test_largest_picture_is_encoded() -> None:
    """The limit is inclusive."""
    assert picture_encoding.MAX_PIXELS == 4000 * 4000
    assert encode_small(encode(Image.new("L", (4000, 4000)))).width == 480
