"""Logs and metrics for the operator.

log         log lines on stderr, with the conversation they belong to
redact      masking of secrets in complete texts; `redact_stream` in streamed text,
            `redact_drawn` in Markdown as a chat draws it, `redact_growing` in live answers
metrics     counters and histograms of the daemon, built on `metric_types`
metrics_page, prometheus  the page `/metrics`, with gauges read on request; its text format
loop_lag, disk  measurement of event loop lag and of free disk space
"""
