{{ range .Services }}{{ . }} {{ .String }} {{ .Port }} {{ .Port.String }} {{ printf "%s" .Port }} {{ print . }}
{{ end }}{{ range .Ports }}{{ . }}
{{ end }}