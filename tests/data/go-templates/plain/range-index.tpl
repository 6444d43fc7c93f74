{{ range $i, $w := .words }}{{ $i }}={{ $w }} {{ end }}
