just text
with { braces } and $vars %% # hash
