"""Alerts: notices to the admins about problems that only an admin can fix.

admins   which alerts the admins get, and the stored state of reported problems
alarms   problems that are reported after a delay
watch    the task that runs the checks
"""
