"""What all tests share."""

pytest_plugins = ["holdfast.testing.plugin"]
