"""A study of attacks and audits over a grid of noise, as a page and as JSON data."""
