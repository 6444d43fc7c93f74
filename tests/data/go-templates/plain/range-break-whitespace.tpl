{{ range .numbers }}
{{- if eq . 1 }}
{{ continue }}
{{ end }}
{{ . }}
{{- end }}
