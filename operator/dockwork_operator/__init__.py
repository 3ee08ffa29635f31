"""The Dockwork operator: Queue and CronJob resources become worker Deployments."""
