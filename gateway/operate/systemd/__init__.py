"""The systemd service behind `holdfast service`.

unit     Sans-IO: renders the unit file
scope    Sans-IO: the machine's service or a user's service, and the paths of each
plan     Sans-IO: the steps to install and uninstall the service
program  the paths of the program, and which of them a service can read
manager  runs the steps and queries systemd
"""
