"""The daemon as a process: start, lock, signals, restart, control socket, systemd."""
