"""`holdfast doctor`: looks at everything a gateway needs, and says what is wrong and what to do.

    check         what a check is; found: Sans-IO: what comes of a group of them
    case          what checks look at: configuration, state folder, the daemon if one runs
    checks        the closed list of all checks
    run           runs them side by side, each with its deadline; a broken one is a finding
    aside         threads that keep nobody waiting
    mending       what `--fix` puts right
    report        Sans-IO: findings as lines for people and as records for programs

One module for each thing that is looked at:

    configuration, modes, installation, certificates
                  what is on this machine: the file, who may read what, the program, TLS roots
    chats, models, hours
                  what is elsewhere: platforms, model services, and the hour there
    database, disk
                  where everything is kept
    daemon, port, service, sandbox
                  what runs, or would
    entry, spending
                  who is let in, and what it may cost
"""
