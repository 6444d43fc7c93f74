{{ range .map }}{{ . }} {{ end }}|{{ range $k, $v := .map }}{{ $k }}:{{ $v }} {{ end }}
