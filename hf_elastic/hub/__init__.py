"""A family on disk: its members, their cards, and the manifest that vouches for every file."""
