"""Telemetry of the mesh: log lines for people, event lines for the auditor, spans for the waterfall."""
