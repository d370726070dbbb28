"""Checks of everything a gateway needs; a finding names the problem and the fix.

    check, checks  the type of a check, and the closed list of all checks
    context        shared input of all checks: configuration, state folder, running daemon
    run            runs the checks concurrently, each with a deadline; daemon threads
    fixes          the automatic fixes behind `--fix`
    report         Sans-IO: findings as lines for people and as JSON records

One module per subject:

    configuration, permissions, installation, certificates
                   this machine: configuration file, file modes, packages, TLS roots
    chats, models, clock
                   remote services: platforms, model services, their clock
    database, disk storage
    daemon, port, service, sandbox
                   processes: the running gateway, the HTTP port, systemd, bubblewrap
    access, spending
                   people with access, and the limits on costs
"""
