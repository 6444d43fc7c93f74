{{ .name }}{{ .n }}{{ if .yes }}{{ end }}{{ range .words }}{{ end }}{{ with .name }}{{ end }}{{/* c */}}{{ .name }}
