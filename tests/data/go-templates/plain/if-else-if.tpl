{{ range .people }}{{ if gt .age 30 }}old{{ else if gt .age 5 }}young{{ else if .admin }}never{{ else }}zero{{ end }} {{ end }}
