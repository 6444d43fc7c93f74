{{ define "tree" }}{{ range $k, $v := . }}{{ $k }}{{ if eq $k "c" }}({{ template "tree" $v }}){{ end }} {{ end }}{{ end }}{{ template "tree" .map }}
