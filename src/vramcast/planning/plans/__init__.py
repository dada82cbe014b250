"""What to run: every deployment of a model on the cards at hand, tabulated over what each term depends on, and ranked."""
