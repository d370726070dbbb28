"""What is fetched from the web: only from the public internet, whatever an address looks like.

addresses   which numbers are of the public internet
urls        what an address asks for, before and after a redirect
fetch       gets it, from the very number that was looked at
errors      why something was not fetched
"""
