"""What the end-to-end tests share: processes, REST, job specs."""
