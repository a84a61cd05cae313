"""Which pods want each other near, and which do not: what InterPodAffinity is made of."""
