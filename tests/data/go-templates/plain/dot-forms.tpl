{{ range .numbers }}{{ . }}{{ print . }}{{ printf "%d" . }}{{ if . }}t{{ end }}{{ end }}{{ with .name }}{{ . }}{{ . | len }}{{ end }}
