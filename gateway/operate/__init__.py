"""Commands for the operator; no module of the daemon imports this package.

cli/        the command `holdfast`, one module per group of commands
setup/      the questions, checks and files behind `holdfast setup`
doctor/     the checks and the report of `holdfast doctor`
why/        the trace of one message for `holdfast why`
backup/     writing, verifying and restoring backups
systemd/    unit files and the service manager behind `holdfast service`
selftest/   a throwaway gateway with stand-in services for `holdfast selftest`
"""
