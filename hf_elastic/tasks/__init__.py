"""Tasks: labelled data in, tokenised data sets and metrics out."""
