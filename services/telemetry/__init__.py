"""What the mesh says about itself: log lines for people, event lines for the auditor, spans for the waterfall."""
