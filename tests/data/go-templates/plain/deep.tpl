{{ range $i, $p := .people }}{{ with $p.tags }}{{ range $j, $t := . }}{{ if and (eq $i 0) (eq $j 1) }}{{ $p.name }}/{{ $t }}/{{ $.n }}{{ end }}{{ end }}{{ else }}({{ $p.name }}){{ end }}{{ end }}
