"""Descheduler: deletes failed pods so that their replacements may get better nodes."""
