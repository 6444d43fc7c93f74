{{ range .people }}{{ .name }} of {{ $.name }}; {{ end }}
