"""What people read in a terminal, a page to each kind of answer: styled lines, plain text when piped."""
