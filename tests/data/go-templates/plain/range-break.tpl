{{ range .numbers }}{{ if eq . 1 }}{{ break }}{{ end }}{{ . }}{{ end }}|{{ range .numbers }}{{ if eq . 1 }}{{ continue }}{{ end }}{{ . }}{{ end }}
