"""Why a pod is where it is, or nowhere: explanations, what would make it fit, and the record written onto pods."""
