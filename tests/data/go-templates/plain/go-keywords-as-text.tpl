if range end {{ "if" }} {%- not jinja -%} {{- "x" -}} %} #} }}
