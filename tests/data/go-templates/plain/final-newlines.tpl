{{ if .yes }}x{{ end }}


