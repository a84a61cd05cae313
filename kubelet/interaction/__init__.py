"""What clients reach in pods: logs, commands, attachments and forwarded ports."""
