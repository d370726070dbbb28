"""The daemon as a process.

service         runs a gateway with signals, control socket and systemd notifications
lock, handover  the lock of the state folder, and files passed to the next process at a restart
start_log, safe_mode, exit, memory  crash counting, exit codes, memory settings
context         restart, reload and crash count, as the process provides them
health, systemd_notify  the state of the daemon, and its reports to systemd
restart, restart_report, successor, reload  restart and configuration reload
control_socket, operations, chat_stream  requests of the command line to the running daemon
state_swap      crash-safe replacement of the state folder's content after a restore
"""
