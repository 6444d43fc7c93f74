a {{/* c1 */}} b {{- /* c2 */ -}} c
{{/* multi
line #} */}}
d
