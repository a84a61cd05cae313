"""CronJob controller: creates Jobs by a schedule."""
