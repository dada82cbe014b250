"""What is known of the rows that are off by more than 1 %."""

EXPLAINED: dict[str, str] = {}
