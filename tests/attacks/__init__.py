"""Attacks that broke the service once, each with the input that did."""
