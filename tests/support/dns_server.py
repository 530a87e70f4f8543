"""A real name server on a free UDP port that answers from a zone defined by the test."""

import socketserver
import threading
from collections import Counter
from typing import Self

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.resolver
import dns.rrset


class NameServer:
    """Use as a context manager. Names have no trailing dot; values are as in a zone file."""

    def __init__(self) -> None:
        self.zone: dict[tuple[str, str], list[str]] = {}
        self.fails: dict[tuple[str, str], dns.rcode.Rcode] = {}
        self.silent = False
        self.query_counts: Counter[tuple[str, str]] = Counter()

    def set(self, name: str, kind: str, *values: str) -> None:
        """Set the answer to a query. Without values, remove it."""
        self.zone[name, kind] = [_quote(each) if kind == "TXT" else each for each in values]

    def fail(self, name: str, kind: str, code: dns.rcode.Rcode = dns.rcode.SERVFAIL) -> None:
        self.fails[name, kind] = code

    @property
    def resolver(self) -> dns.resolver.Resolver:
        """Return a resolver that queries only this server."""
        resolver = dns.resolver.Resolver(configure=False)
        resolver.nameservers, resolver.port = ["127.0.0.1"], self._server.server_address[1]
        return resolver

    def __enter__(self) -> Self:
        self._server = socketserver.UDPServer(("127.0.0.1", 0), _Question)
        self._server.names = self  # type: ignore[attr-defined]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, query: dns.message.Message) -> dns.message.Message | None:
        question = query.question[0]
        key = (question.name.to_text(omit_final_dot=True), dns.rdatatype.to_text(question.rdtype))
        self.query_counts[key] += 1
        if self.silent:
            return None
        response = dns.message.make_response(query)
        response.flags |= dns.flags.RA
        if key in self.fails:
            response.set_rcode(self.fails[key])
        elif values := self.zone.get(key):
            response.answer.append(dns.rrset.from_text_list(question.name, 60, "IN", key[1], values))
        elif not any(name == key[0] for name, _ in self.zone):
            response.set_rcode(dns.rcode.NXDOMAIN)
        return response


def _quote(text: str) -> str:
    """Split the text into quoted strings of at most 255 characters."""
    return " ".join(f'"{text[at : at + 255]}"' for at in range(0, len(text), 255))


class _Question(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        data, socket = self.request
        response = self.server.names.answer(dns.message.from_wire(data))  # type: ignore[attr-defined]
        if response:
            socket.sendto(response.to_wire(max_size=4096), self.client_address)
