"""One scenario, several arms, the same seeds: what differs, pod by pod, and a page that shows it."""
