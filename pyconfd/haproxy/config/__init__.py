"""The text of haproxy.cfg as data: parse, compare, judge, describe. Pure."""
