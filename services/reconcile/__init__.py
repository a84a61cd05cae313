"""What a controller is, as values: actions, the Controller record, the work queue, expectations."""
