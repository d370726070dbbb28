"""The self-test: this installation on this machine, while connections and processes break.

    trials         the trials, and the expected result of each
    stage          the daemon as a separate process with temporary state
    chat_service   a stand-in for Telegram's Bot API
    model_service  a stand-in for a model service
    plain_http     the minimal HTTP server of both stand-ins

The test contacts no other machine, and uses neither the state nor the configuration of this
installation.
"""
