{{ range slice .words 1 }}{{ . }}{{ end }} {{ range $k, $v := (index .people 0) }}{{ $k }}={{ $v }};{{ end }}
