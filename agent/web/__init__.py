"""Fetching from the web, restricted to the public internet (SSRF protection).

addresses   the test for public IP addresses
urls        parsing and checking of URLs and redirects
fetch       the HTTP client, which connects to exactly the addresses that were checked
errors      the error of this package
"""
