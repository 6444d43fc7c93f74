{{ range $p := .people }}{{ $p.name }}:{{ range $t := $p.tags }}{{ $t }}{{ else }}-{{ end }},{{ end }}
