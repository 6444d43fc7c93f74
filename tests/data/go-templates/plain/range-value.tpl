{{ range $w := .words }}{{ $w }}{{ . }} {{ end }}
