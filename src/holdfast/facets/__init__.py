"""What each facet is: its types, its pure rules, and the contract a backend fulfils. No I/O."""
