a
{{ define "x" }}
  body
{{ end }}
b
{{ template "x" }}
c
