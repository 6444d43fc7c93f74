{{ if .yes }}
yes
{{ end }}
{{ range .words }}
{{ . }}
{{ end }}
{{ with .name }}
{{ . }}
{{ end }}
end
