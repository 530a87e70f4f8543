"""PURE. Decode the body of an HTTP response in bounded memory."""

import zlib

from app.errors import UnreadableResponse

ACCEPTED = "gzip"  # the value of Accept-Encoding
_GZIP, _PLAIN = ("gzip", "x-gzip"), ("", "identity")


class Body:
    """A body that is decoded chunk by chunk. Neither its raw nor its decoded size may exceed `limit` bytes.

    At most one content coding is supported, because gzip within gzip can expand a few kilobytes to gigabytes.
    The constructor raises UnreadableResponse if `encoding` is not gzip, identity or "". Bytes after the end
    of the compressed data are ignored.
    """

    def __init__(self, encoding: str, limit: int) -> None:
        coding = encoding.strip().lower()
        if coding not in (*_GZIP, *_PLAIN):
            raise UnreadableResponse(
                f"The response is encoded as {coding[:40]!r}, but {ACCEPTED} was requested."
            )
        self._limit = limit
        self._gunzip = zlib.decompressobj(16 + zlib.MAX_WBITS) if coding in _GZIP else None
        self._received = 0
        self._content = bytearray()

    def feed(self, chunk: bytes) -> None:
        """Add received bytes. Raise UnreadableResponse if the body is too large or cannot be decompressed."""
        self._received += len(chunk)
        if self._gunzip is None:
            self._content += chunk
        elif not self._gunzip.eof:
            try:
                self._content += self._gunzip.decompress(chunk, self._limit + 1 - len(self._content))
            except zlib.error as error:
                raise UnreadableResponse(f"The response cannot be decompressed: {error}.") from None
        if max(self._received, len(self._content)) > self._limit:
            raise UnreadableResponse(f"The response is larger than {self._limit // 1_000_000} MB.")

    def finish(self) -> bytes:
        """Return the whole body. Raise UnreadableResponse if its end is missing."""
        if self._gunzip and self._received and not self._gunzip.eof:
            raise UnreadableResponse("The response was cut off: its compressed data is incomplete.")
        return bytes(self._content)
