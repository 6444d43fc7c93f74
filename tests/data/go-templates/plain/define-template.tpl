{{ define "greet" }}Hello {{ .name }}!{{ end }}{{ range .people }}{{ template "greet" . }} {{ end }}{{ template "greet" .  }}
