"""What the gate runs besides the tests."""
