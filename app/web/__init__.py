"""The web door, thin: it turns requests into calls of the stages, and what they say into pages.

security      headers, sizes, where a request comes from, and how often it may come
pages         the one template environment of the web pages
errors        what went wrong, as a status and a page
public        the front page, a day's papers, signing up
reader        what a signed link lets a reader do
"""
