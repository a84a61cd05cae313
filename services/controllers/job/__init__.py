"""Jobs: pods run to completion, counted once each."""
