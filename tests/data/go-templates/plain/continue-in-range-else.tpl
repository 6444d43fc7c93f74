{{ range .numbers }}{{ range $.none }}{{ else }}{{ if . }}{{ continue }}{{ end }}{{ end }}{{ . }}{{ end }}
