"""CronJobs: Jobs created by a schedule."""
