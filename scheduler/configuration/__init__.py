"""KubeSchedulerConfiguration v1: read strictly, validated by upstream's rules, merged into profiles."""
