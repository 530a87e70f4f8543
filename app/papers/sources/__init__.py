"""Upstream sources, one module each, with a pure `parse()` and a thin `fetch()`.

source_types       the kinds of sources: their parsers, how often they are polled, their options and labels
huggingface        Hugging Face Daily Papers
arxiv              the query API and the daily feed
oai                arXiv's back catalog, through OAI-PMH
feed               any RSS or Atom feed
huggingface_pages  search pages of Hugging Face, saved as text
jsonl              files of papers in JSON or JSON lines
arxiv_dump         arXiv's monthly metadata dump
files              read saved responses and files of JSON lines, and detect their kind
xml_elements       PURE: read XML elements from arXiv, even if truncated or hostile
withdrawal_phrases PURE: recognize that authors withdrew an arXiv paper
json_rows          PURE: rows and rejections of JSON responses, used by all JSON sources
calendar           PURE: days on which a source is expected to have no papers
state              PURE: the progress of a source between polls, and the pages fetched from it
http_client        the polite HTTP client: identification, retries, size limits
host_rate_limits   limits on requests to each host: pauses for arXiv, 429, Retry-After
allowed_addresses  PURE: check the IP addresses to which a host name resolves
content_decoding   PURE: decode response bodies within limits
deadlines          asynchronous work that ends at a deadline or when the service stops
"""
