"""The condition language: text -> syntax tree -> checked, typed tree."""
