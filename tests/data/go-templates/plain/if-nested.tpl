{{ if .yes }}{{ if .no }}a{{ else }}{{ if .one }}b{{ end }}{{ end }}{{ end }}
