"""Building blocks of controllers, as values: actions, the Controller record, the work queue, expectations."""
