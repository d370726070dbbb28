"""Messages to the admins about failures of the deployment."""
