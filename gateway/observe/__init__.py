"""What the operator can see: logs and figures.

log         lines on stderr, with the conversation they belong to
redact      takes secrets out of logs and of what is sent; veil: of what is still growing
ledger      what is counted, out of facts that pass by; tally: how; pulse: whether the loop is late
exposition  writes it for Prometheus, and is the only one to know of that
"""
