"""Client access to pods: logs, commands, attachments and forwarded ports."""
