{{ range .none }}x{{ else }}none {{ .name }}{{ end }} {{ range .nothing }}x{{ else }}nil{{ end }} {{ range .emptymap }}x{{ else }}map{{ end }}
