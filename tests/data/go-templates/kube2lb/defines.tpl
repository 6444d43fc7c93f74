{{ define "server" }}    server {{ EscapeNode .Name }} {{ .IP }}:{{ .Port }} {{ . }}
{{ end }}{{ define "all" }}{{ range .Services }}{{ .Name }}@{{ $.Domain }}
{{ range .Endpoints }}{{ template "server" . }}{{ end }}{{ end }}{{ end }}{{ template "all" . }}