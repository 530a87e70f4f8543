"""Fetch the certificates that verify messages from Amazon SNS, and cache them."""

import asyncio
from datetime import datetime

from cryptography import x509

from app.errors import SourceError
from app.papers.sources import http_client

MAX_CERTIFICATES = 20  # Amazon has one for each region, and replaces it about once a year


class CertificateCache:
    """The certificates that this process has fetched, by URL."""

    def __init__(self, http: http_client.HttpTransport, contact: str) -> None:
        self._http, self._contact = http, contact
        self._certificates: dict[str, x509.Certificate] = {}

    def get(self, url: str, now: datetime) -> x509.Certificate:
        """Return the certificate at a URL. The caller must check that the URL is Amazon's.

        Raise SourceError if the certificate cannot be fetched or read.
        """
        if (cached := self._certificates.get(url)) is not None:
            return cached
        body = asyncio.run(self._fetch(url, now))
        try:
            certificate = x509.load_pem_x509_certificate(body)
            certificate.public_key()
        except ValueError:
            raise SourceError(f"{url} does not contain a PEM certificate") from None
        if len(self._certificates) >= MAX_CERTIFICATES:
            self._certificates.clear()
        self._certificates[url] = certificate
        return certificate

    async def _fetch(self, url: str, now: datetime) -> bytes:
        async with http_client.open_client(self._contact, now, self._http) as client:
            return (await client.get(url, follow_redirects=False)).body
