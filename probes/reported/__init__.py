"""What a server says of itself over HTTP: its Prometheus endpoint, and what else it answers without being changed."""
