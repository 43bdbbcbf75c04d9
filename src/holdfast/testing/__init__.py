"""What a third-party backend needs to show that it keeps the promises: suites, servers, faults."""
