{{ define "x" }}{{ range .tags }}{{ . }}{{ $.name }} {{ end }}{{ end }}{{ range .people }}{{ template "x" . }}{{ end }}
